package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve-io/varve/controller/metadata"
)

// resourceChange is what a request asks of one resource.
type resourceChange struct {
	kind    kmsg.ConfigResourceType
	name    string
	changes []metadata.ConfigChange
}

// resourceResult is what became of it.
type resourceResult struct {
	kind kmsg.ConfigResourceType
	name string
	err  error
}

// alterConfigs, versions 0-2: the whole configuration of each resource. What
// is not named goes back to its default.
func (b *batch) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	var asked []resourceChange
	for _, r := range req.Resources {
		x := resourceChange{kind: r.ResourceType, name: r.ResourceName}
		for _, c := range r.Configs {
			x.changes = append(x.changes, metadata.ConfigChange{Name: c.Name, Op: metadata.OpSet, Value: c.Value})
		}
		asked = append(asked, x)
	}
	resp := kmsg.NewPtrAlterConfigsResponse()
	for _, done := range b.alter(ctx, asked, true, req.ValidateOnly) {
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage = done.kind, done.name, code(done.err), text(done.err)
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

// incrementalAlterConfigs, versions 0-1 (KIP-339).
func (b *batch) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	var asked []resourceChange
	for _, r := range req.Resources {
		x := resourceChange{kind: r.ResourceType, name: r.ResourceName}
		for _, c := range r.Configs {
			x.changes = append(x.changes, metadata.ConfigChange{Name: c.Name, Op: metadata.ConfigOp(c.Op), Value: c.Value})
		}
		asked = append(asked, x)
	}
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	for _, done := range b.alter(ctx, asked, false, req.ValidateOnly) {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName, r.ErrorCode, r.ErrorMessage = done.kind, done.name, code(done.err), text(done.err)
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func (b *batch) alter(ctx context.Context, asked []resourceChange, replace, dry bool) []resourceResult {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	named := twice(asked, func(x resourceChange) resource { return resource{x.kind, x.name} })
	var results []resourceResult
	for _, x := range asked {
		key := resource{x.kind, x.name}
		if named[key] == 0 {
			continue
		}
		results = append(results, resourceResult{kind: x.kind, name: x.name})
		if named[key] > 1 {
			named[key] = 0
			b.add(nil, metadata.Refuse(kerr.InvalidRequest, "Each resource must appear at most once."))
			continue
		}
		b.add(b.planAlter(x, replace))
	}
	for i, err := range b.commit(ctx, dry) {
		results[i].err = err
	}
	return results
}

func (b *batch) planAlter(x resourceChange, replace bool) (metadata.Command, error) {
	if b.refused != nil {
		return nil, b.refused
	}
	cmd, err := b.planner.AlterConfig(metadata.ResourceType(x.kind), x.name, x.changes, replace)
	if err != nil {
		return nil, err
	}
	return cmd, nil
}
