package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine is where a run took place.
type machine struct {
	CPU     string
	Cores   int
	Memory  int64 // bytes
	Kernel  string
	GoMaker string // Go release that built the client
}

func describeMachine() machine {
	m := machine{Cores: runtime.NumCPU(), GoMaker: runtime.Version()}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m.CPU = strings.Trim(name, "\t :\n")
			break
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// spinArg makes the command a spinner.
const spinArg = "spin-until-stdin-ends"

// spin keeps one CPU busy at idle priority, until standard input ends: so it
// never outlives the command that started it.
func spin() {
	runtime.LockOSThread()
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, attr, 0); err != nil {
		fmt.Fprintln(os.Stderr, "spin: idle priority:", err)
		os.Exit(1)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	//lint:ignore SA5002 to burn what nobody else wants is its purpose
	for {
	}
}

// startSpinners starts one spinner a CPU; stop ends them.
func startSpinners() (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	for range runtime.NumCPU() {
		cmd := exec.Command(self, spinArg)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		ends = append(ends, func() { in.Close(); cmd.Wait() })
	}
	return stop, nil
}

// touch makes the kernel use size bytes of memory once, as page cache of a
// file that is removed again.
func touch(dir string, size int64) error {
	path := filepath.Join(dir, "touch")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	chunk := make([]byte, 4<<20)
	for ; size > 0; size -= int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			return fmt.Errorf("touch memory: %w", err)
		}
	}
	return nil
}
