package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The control's mutation of the only place that makes the bytes of a file durable: segments are not synced. All other
// files are, or the node would forget whose its directory is and not start at all, and a loss would not be counted.
const (
	syncFile     = "broker/log/vfs/os_linux.go"
	syncLine     = `return f.do("fdatasync", unix.Fdatasync)`
	unsyncedLine = `if strings.HasSuffix(f.Name(), ".log") { return nil }; ` + syncLine
)

// build makes the program at path, with fdatasync or without.
func build(ctx context.Context, path string, unsynced bool) error {
	root, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	args := []string{"build", "-o", path}
	if unsynced {
		overlay, err := writeOverlay(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	}
	_, err = goTool(ctx, root, append(args, "./cmd/varve")...)
	return err
}

// writeOverlay writes the mutated source and the file that tells go build of it.
func writeOverlay(root, dir string) (string, error) {
	name := filepath.Join(root, syncFile)
	source, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	mutated, err := withoutSync(source)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	replacement := filepath.Join(dir, "unsynced.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {name: replacement}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(replacement, mutated, 0o644); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, overlay, 0o644)
}

func withoutSync(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(syncLine)); n != 1 {
		return nil, fmt.Errorf("%d times %q, not once: the control must learn how files are synced now", n, syncLine)
	}
	return bytes.Replace(source, []byte(syncLine), []byte(unsyncedLine), 1), nil
}

func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
