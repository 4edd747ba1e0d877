package lan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	slots    = 64  // networks on one machine at a time
	maxHosts = 200 // in one network
	table    = "varve"
)

// Outside is the number of the calling process, where a host's number is wanted.
const Outside = -1

// Lan is a bridge with hosts. Its methods are for one goroutine.
type Lan struct {
	slot  int
	hosts int
	lock  *os.File
}

// Make makes a network of hosts, which hear each other and the calling process.
func Make(hosts int) (*Lan, error) {
	if err := able(); err != nil {
		return nil, err
	}
	if hosts < 1 || hosts > maxHosts {
		return nil, fmt.Errorf("lan: %d hosts, not 1 to %d", hosts, maxHosts)
	}
	for slot := range slots {
		lock, err := take(slot)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		l := &Lan{slot: slot, hosts: hosts, lock: lock}
		if err := l.make(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	}
	return nil, fmt.Errorf("lan: all %d slots are taken", slots)
}

// able says what is missing for Make.
func able() error {
	if os.Geteuid() != 0 {
		return errors.New("lan: only root may make network namespaces; run this as root")
	}
	for program, packet := range map[string]string{"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nsenter": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("lan: no %s (Debian: %s): %w", program, packet, err)
		}
	}
	return nil
}

// take locks a slot; without an error and a file it is somebody else's.
func take(slot int) (*os.File, error) {
	lock, err := os.OpenFile(fmt.Sprintf("/run/varve-lan-%d.lock", slot), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, lock.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return lock, nil
}

func (l *Lan) bridge() string { return bridgeOf(l.slot) }

func bridgeOf(slot int) string { return fmt.Sprintf("varve-lan-%d", slot) }

// Namespace is the file of a host's network namespace.
func (l *Lan) Namespace(i int) string { return "/run/netns/" + l.namespace(i) }

func (l *Lan) namespace(i int) string { return fmt.Sprintf("%s-%d", l.bridge(), i+1) }

// Addr is the IPv4 address of a host, or of Outside.
func (l *Lan) Addr(i int) string {
	if i == Outside {
		return fmt.Sprintf("10.213.%d.254", l.slot)
	}
	return fmt.Sprintf("10.213.%d.%d", l.slot, i+1)
}

func (l *Lan) make() error {
	if err := sweep(l.slot); err != nil {
		return err
	}
	if err := all(
		words("ip link add", l.bridge(), "type bridge"),
		words("ip addr add", l.Addr(Outside)+"/24", "dev", l.bridge()),
		words("ip link set", l.bridge(), "up"),
	); err != nil {
		return err
	}
	for i := range l.hosts {
		plug := fmt.Sprintf("vlan%d-%d", l.slot, i+1)
		if err := all(
			words("ip netns add", l.namespace(i)),
			words("ip link add", plug, "type veth peer name eth0 netns", l.namespace(i)),
			words("ip link set", plug, "master", l.bridge(), "up"),
			l.in(i, "ip addr add", l.Addr(i)+"/24", "dev eth0"),
			l.in(i, "ip link set lo up"),
			l.in(i, "ip link set eth0 up"),
			l.in(i, "nft add table inet", table),
			l.in(i, "nft add chain inet", table, "hear { type filter hook input priority 0; }"),
		); err != nil {
			return err
		}
	}
	return nil
}

// Drop lets nothing of what one host sends arrive at another; the other way stays open.
func (l *Lan) Drop(from, to int) error {
	if to == Outside {
		return errors.New("lan: what arrives outside is not ours to drop")
	}
	return run(l.in(to, "nft add rule inet", table, "hear ip saddr", l.Addr(from), "drop"))
}

// Lose drops so many percent, 1 to 99, of the packets that arrive at a host, by chance.
func (l *Lan) Lose(at, percent int) error {
	if percent < 1 || percent > 99 {
		return fmt.Errorf("lan: loss of %d percent, not 1 to 99", percent)
	}
	return run(l.in(at, "nft add rule inet", table, "hear numgen random mod 100 <", fmt.Sprint(percent), "drop"))
}

// Slow lets a host send so many kbit/s and no more; what does not fit in a short queue is lost.
func (l *Lan) Slow(from, kbit int) error {
	return run(l.in(from, "tc qdisc replace dev eth0 root tbf burst 32kbit latency 400ms rate", fmt.Sprintf("%dkbit", kbit)))
}

// Heal takes all faults of a host away. It is no error if there is none.
func (l *Lan) Heal(i int) error {
	err := run(l.in(i, "nft flush chain inet", table, "hear"))
	if shaped, lookErr := output(l.in(i, "tc qdisc show dev eth0")); lookErr != nil {
		err = errors.Join(err, lookErr)
	} else if strings.Contains(shaped, "tbf") {
		err = errors.Join(err, run(l.in(i, "tc qdisc del dev eth0 root")))
	}
	return err
}

// Close takes the network away. What runs in it has been ended before.
func (l *Lan) Close() error { return errors.Join(sweep(l.slot), l.lock.Close()) }

// Sweep takes away the networks of processes that are dead.
func Sweep() error {
	if err := able(); err != nil {
		return err
	}
	var errs []error
	for slot := range slots {
		if _, err := os.Stat("/sys/class/net/" + bridgeOf(slot)); err != nil {
			continue
		}
		lock, err := take(slot)
		if lock != nil {
			err = errors.Join(sweep(slot), lock.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweep takes away what there is of a slot that the caller has locked. The veth of a namespace goes with it.
func sweep(slot int) error {
	var errs []error
	names, err := filepath.Glob("/run/netns/" + bridgeOf(slot) + "-*")
	errs = append(errs, err)
	plugs, err := filepath.Glob(fmt.Sprintf("/sys/class/net/vlan%d-*", slot))
	errs = append(errs, err)
	for _, plug := range plugs {
		errs = append(errs, run(words("ip link del", filepath.Base(plug))))
	}
	for _, name := range names {
		errs = append(errs, run(words("ip netns del", filepath.Base(name))))
	}
	if _, err := os.Stat("/sys/class/net/" + bridgeOf(slot)); err == nil {
		errs = append(errs, run(words("ip link del", bridgeOf(slot))))
	}
	return errors.Join(errs...)
}

// in is a command inside a host.
func (l *Lan) in(i int, parts ...string) []string {
	return append([]string{"nsenter", "--net=" + l.Namespace(i)}, words(parts...)...)
}

// words splits a command at its spaces; no name here has any.
func words(parts ...string) []string { return strings.Fields(strings.Join(parts, " ")) }

func all(commands ...[]string) error {
	for _, c := range commands {
		if err := run(c); err != nil {
			return err
		}
	}
	return nil
}

func run(command []string) error {
	_, err := output(command)
	return err
}

// output runs a command; the error holds what it said.
func output(command []string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("lan: %s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
