package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of the CPU times in /proc/PID/stat, fixed at 1/100 s
// for user space on every Linux architecture.
const clockTick = time.Second / 100

// Process is a server that this program started. Its output goes to a file.
type Process struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed once the process was waited for
	err  error         // of Wait, valid after done
}

// start runs cmd with its output in the file logPath, and in watch unless that is nil. All of it has been
// written to both when Exited is closed.
func start(cmd *exec.Cmd, logPath string, watch io.Writer) (*Process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	var out io.Writer = log
	if watch != nil {
		out = io.MultiWriter(watch, log)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		log.Close()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogPath names the file with everything that the process printed.
func (p *Process) LogPath() string { return p.log.Name() }

// Exited is closed when the process has ended, by itself or by Stop or Kill.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Stop asks the process to end (SIGTERM), waits up to grace, then kills it.
// It reports what made the process end if that was not a clean exit.
func (p *Process) Stop(grace time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("process %d did not end within %v of SIGTERM: killed", p.PID(), grace)
	}
	// A JVM that ends by SIGTERM exits with 143.
	if exit := (*exec.ExitError)(nil); errors.As(p.err, &exit) && exit.ExitCode() == 143 {
		return nil
	}
	return p.err
}

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Freeze stops the process where it is (SIGSTOP), without waiting until it has stopped. It can be killed then, or go on by Thaw.
func (p *Process) Freeze() { p.cmd.Process.Signal(syscall.SIGSTOP) }

// Halt stops the process like Freeze and waits, up to limit, until no thread of it runs. One that waits for the disk may
// still do so; it stops before it comes back from the system call.
func (p *Process) Halt(limit time.Duration) error {
	p.Freeze()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		running, err := p.runs()
		if err != nil || !running {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d still runs %v after SIGSTOP", p.PID(), limit)
		}
	}
}

// runs says whether any thread may execute the program's code.
func (p *Process) runs() (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		return false, err
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread ended
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		// Stopped, in an uninterruptible wait, or dead.
		if rest != "" && !strings.ContainsRune("TtDZXx", rune(rest[0])) {
			return true, nil
		}
	}
	return false, nil
}

// Thaw lets a frozen process go on.
func (p *Process) Thaw() { p.cmd.Process.Signal(syscall.SIGCONT) }

// CPU is the user and system time that the process has used so far, in steps
// of 10 ms.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.PID()) }

// CPU is the user and system time that a process has used so far.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(stat))
}

// parseCPU adds utime and stime, the 14th and 15th fields of a stat line. The
// second field, the command, is in parentheses and may hold spaces and more of
// them.
func parseCPU(stat string) (time.Duration, error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("stat line %q: too few fields", stat)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// Memory is resident memory in bytes: now, and the most since ResetPeak.
type Memory struct{ RSS, Peak int64 }

// Memory reads the process's resident memory.
func (p *Process) Memory() (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			m.RSS = kib << 10
		case "VmHWM:":
			m.Peak = kib << 10
		}
	}
	return m, nil
}

// ResetPeak makes the present resident memory the peak.
func (p *Process) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0)
}
