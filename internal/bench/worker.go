//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"
)

// workerArg is the argument that makes this program a worker.
const workerArg = "worker"

// A request asks a worker to do one thing; an answer is what came of it.
type request struct {
	Do   string          `json:"do"`
	Args json.RawMessage `json:"args,omitempty"`
}

type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// An action is one thing a worker can do.
type action func(args json.RawMessage) (any, error)

// does makes an action of a method with typed arguments and result.
func does[A, R any](f func(A) (R, error)) action {
	return func(raw json.RawMessage) (any, error) {
		var a A
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &a); err != nil {
				return nil, err
			}
		}
		return f(a)
	}
}

// work serves requests, one at a time, until in ends, which is when the
// conductor has gone or has had enough.
func work(in io.Reader, out io.Writer, actions map[string]action) error {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q request
		if err := dec.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		do, ok := actions[q.Do]
		if !ok {
			a.Error = fmt.Sprintf("there is no action %q", q.Do)
		} else if result, err := do(q.Args); err != nil {
			a.Error = err.Error()
		} else if a.Result, err = json.Marshal(result); err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

// A worker is a child process. Its methods are called one at a time.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// anyCPU lets the kernel place a worker.
const anyCPU = -1

// hire starts a worker, on one processor only unless cpu is anyCPU. It ends with
// ctx, with its standard input, or with dismiss.
func hire(ctx context.Context, cpu int) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{self, workerArg}
	if folder, ok := ctx.Value(profiles{}).(string); ok {
		args = append(args, folder)
	}
	if cpu != anyCPU {
		args = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	w := &worker{cmd: cmd}
	if w.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return w, nil
}

// call has the worker do something and waits for the result, a pointer or nil.
func (w *worker) call(do string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w.in).Encode(request{do, raw}); err != nil {
		return fmt.Errorf("%s: the worker is gone: %w", do, err)
	}
	var a answer
	if err := w.out.Decode(&a); err != nil {
		return fmt.Errorf("%s: the worker is gone: %w", do, err)
	}
	switch {
	case a.Error != "":
		return fmt.Errorf("%s: %s", do, a.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(a.Result, result)
}

// dismiss ends the worker. It ends by itself when its input does, and owns
// nothing that outlives it.
func (w *worker) dismiss() {
	w.in.Close()
	kill := time.AfterFunc(2*time.Second, func() {
		_ = w.cmd.Process.Kill() // it may have ended meanwhile
	})
	defer kill.Stop()
	_ = w.cmd.Wait() // what it was to do it has done
}

// profiles is the key of a context's value: the folder that workers write their
// processor profiles to.
type profiles struct{}

// profile writes a processor profile of this process to folder until stop.
func profile(folder string) (stop func(), err error) {
	f, err := os.Create(filepath.Join(folder, fmt.Sprintf("bench-%d.pprof", os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// A staff is a server and who loads it, in processes of their own.
type staff struct {
	server, load *worker
}

// hireStaff starts both on the processors given.
func hireStaff(ctx context.Context, serverCPU, loadCPU int) (*staff, error) {
	server, err := hire(ctx, serverCPU)
	if err != nil {
		return nil, err
	}
	load, err := hire(ctx, loadCPU)
	if err != nil {
		server.dismiss()
		return nil, err
	}
	return &staff{server, load}, nil
}

func (s *staff) dismiss() {
	s.load.dismiss()
	s.server.dismiss()
}

// usage is what a worker's process has used so far.
type usage struct {
	CPU      float64 // seconds, kernel included
	Resident int64   // bytes
}

// measureSelf reports this process's usage.
func measureSelf() (usage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}, err
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return usage{}, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return usage{}, fmt.Errorf("/proc/self/statm: %w", err)
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return usage{CPU: cpu.Seconds(), Resident: resident * int64(os.Getpagesize())}, nil
}

// raiseFiles lets this process open as many files as it may.
func raiseFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}
