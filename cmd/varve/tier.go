package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/broker/admin"
)

func newTier(a *app) *cobra.Command {
	return group("tier", "Show what is on local disks and what is in the object store", newTierStatus(a), newTierSegments(a))
}

// get asks a node's admin listener and decodes its JSON.
func (a *app) get(ctx context.Context, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	address := strings.TrimSuffix(a.adminURL, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return &problem{"--admin " + a.adminURL, innermost(err), "it is the URL of a node's varve.admin.listener, such as " + defaultAdminURL}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return &problem{"node at " + a.adminURL, innermost(err), "name a node's varve.admin.listener with --admin"}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var answer admin.Error
		if json.NewDecoder(resp.Body).Decode(&answer) != nil || answer.Message == "" {
			answer.Message = resp.Status
		}
		return &problem{"node at " + a.adminURL, errors.New(answer.Message), ""}
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return &problem{"node at " + a.adminURL, fmt.Errorf("does not answer as Varve does: %w", err), ""}
	}
	return nil
}
