// Command parley is a voice backend for xiaozhi devices: an embedded MQTT broker
// for control, an encrypted UDP channel for audio, and the conversation between
// them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // a static binary on a machine without time zones

	_ "golang.org/x/crypto/x509roots/fallback" // a static binary on a machine without CA certificates
)

// version is set by the linker.
var version = "dev"

// Exit statuses: a fault of what was typed or configured is told apart from one
// of running.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `Parley, a voice backend for xiaozhi devices.

  parley serve   [--config FILE]         serve devices
  parley demo    [--config FILE]         hear a question become an answer
  parley talk    --server HOST:PORT ...  be a device, and say something
  parley check   [--config FILE]         validate a configuration
  parley doctor  [--server HOST]         find why nothing is heard
  parley token   [--device|--role|--all] let somebody lend tools to conversations
  parley pipe    [PROGRAM ...]           lend tools of programs on this machine
  parley version                         print the version

"parley COMMAND --help" lists a command's flags.
`

// A command runs until it is done or ctx ends and returns why it failed.
type command func(ctx context.Context, args []string, out io.Writer) error

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process: it returns the exit status.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	commands := map[string]command{
		"serve": serve, "demo": demo, "talk": talk, "check": check,
		"doctor": examine, "token": token, "pipe": lend, guardCommand: guard,
		"version": func(_ context.Context, _ []string, out io.Writer) error {
			fmt.Fprintln(out, "parley", version)
			return nil
		},
	}
	if len(args) == 0 {
		fmt.Fprint(errOut, usage)
		return exitUsage
	}
	cmd, ok := commands[args[0]]
	if !ok {
		if args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
			fmt.Fprint(out, usage)
			return exitOK
		}
		fmt.Fprintf(errOut, "parley: unknown command %q\n\n%s", args[0], usage)
		return exitUsage
	}
	err := cmd(ctx, args[1:], out)
	var u *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &u):
		fmt.Fprintln(errOut, err)
		return exitUsage
	}
	fmt.Fprintln(errOut, "parley:", err)
	return exitFailed
}

// A usageError is a fault of what was typed or configured.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// newFlags returns a flag set whose faults are usage errors.
func newFlags(name string, out io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("parley "+name, flag.ContinueOnError)
	f.SetOutput(out)
	return f
}

// parse reads flags; anything left over is a fault.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return &usageError{err}
	}
	if f.NArg() > 0 {
		return &usageError{fmt.Errorf("%s: unexpected argument %q", f.Name(), f.Arg(0))}
	}
	return nil
}
