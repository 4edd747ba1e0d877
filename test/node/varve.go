package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// VarveConfig says how to start Varve.
type VarveConfig struct {
	Binary   string   // bin/varve
	Dir      string   // for its files
	StoreURL string   // empty: a folder below Dir
	Settings []string // "key=value", given by --set
	Env      []string // added to the environment
	Host     Host     // where it runs
	// Log, if not nil, gets what the node prints as it prints it, beside the file.
	Log io.Writer
}

const loopback = "127.0.0.1"

// varvePorts is how many ports a node has: clients, controller, HTTP.
const varvePorts = 3

// ControllerAddr is where a node started in dir will have its CONTROLLER
// listener, host:port, so that a test can put something in front of it.
func ControllerAddr(dir string) (string, error) {
	ports, err := portsOf(dir, varvePorts)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", loopback, ports[1]), nil
}

// Host is where a node runs. The zero Host is 127.0.0.1 of the caller.
type Host struct {
	Addr      string // IP address of its listeners
	Namespace string // file of its network namespace, which needs root and nsenter
}

// addr is an address of a node there, host:port.
func (h Host) addr(port int) string { return fmt.Sprintf("%s:%d", cmp.Or(h.Addr, loopback), port) }

// StartVarve starts a single combined node and waits until it answers; an empty
// folder is formatted by the server itself, within StartUp.
func StartVarve(ctx context.Context, cfg VarveConfig) (*Broker, error) {
	b, err := LaunchVarve(cfg)
	if err != nil {
		return nil, err
	}
	return b, b.Await(ctx)
}

// LaunchVarve is StartVarve without the wait, for who does not let the node
// come that far; others call Await. It is node 1 unless a setting says
// otherwise; the last of equal settings counts.
func LaunchVarve(cfg VarveConfig) (*Broker, error) {
	binary, err := filepath.Abs(cfg.Binary)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("no Varve at %s: run make build", binary)
	}
	ports, err := portsOf(cfg.Dir, varvePorts)
	if err != nil {
		return nil, err
	}
	b := &Broker{Kind: "varve", Addr: cfg.Host.addr(ports[0]), Admin: cfg.Host.addr(ports[2]), Dir: cfg.Dir, LogDir: filepath.Join(cfg.Dir, "data")}
	store := cfg.StoreURL
	if store == "" {
		folder := filepath.Join(cfg.Dir, "store")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		store = "file://" + folder
	}
	args := []string{"server"}
	for _, s := range append([]string{
		"node.id=1",
		"listeners=PLAINTEXT://" + b.Addr + ",CONTROLLER://" + cfg.Host.addr(ports[1]),
		"log.dirs=" + b.LogDir,
		"varve.store.url=" + store,
		"varve.admin.listener=" + b.Admin,
	}, cfg.Settings...) {
		args = append(args, "--set", s)
	}
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	if cfg.Host.Namespace != "" { // nsenter becomes the program: same process id, same end
		cmd = exec.Command("nsenter", append([]string{"--net=" + cfg.Host.Namespace, binary}, args...)...)
	}
	cmd.Env = append(os.Environ(), cfg.Env...)
	b.began = time.Now()
	if b.Process, err = start(cmd, filepath.Join(cfg.Dir, "varve.out"), cfg.Log); err != nil {
		return nil, err
	}
	return b, nil
}
