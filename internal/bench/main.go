//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A plan says how much is measured.
type plan struct {
	samples     int           // of each figure
	short       time.Duration // one sample of a closed loop
	window      time.Duration // one sample of what happens at a device's pace
	steps       int           // in the search for a capacity, at most
	encodeStart time.Duration // over which replies that must be encoded begin
	arrivals    int           // devices that come at once
	storm       int           // devices of the storm
	hostile     float64       // packets at least
	limit       time.Duration // for everything
}

func fullPlan() plan {
	return plan{
		samples: 5, short: 400 * time.Millisecond, window: 1500 * time.Millisecond, steps: 4,
		encodeStart: 8 * time.Second, arrivals: 2000, storm: 10_000, hostile: 1e6, limit: 6 * time.Minute,
	}
}

// quickPlan is for those who change this program, or want to see it run.
func quickPlan() plan {
	return plan{
		samples: 1, short: 150 * time.Millisecond, window: time.Second, steps: 1,
		encodeStart: 4 * time.Second, arrivals: 500, storm: 2000, hostile: 1e5, limit: time.Minute,
	}
}

// A measurement makes one table.
type measurement struct {
	name string
	run  func(context.Context, plan) (table, error)
}

func measurements() []measurement {
	return []measurement{
		{"udp relay", measureRelay},
		{"udp lossless", measureLossless},
		{"stages", measureStages},
		measureCapacity(false, 1000),
		measureCapacity(true, 200),
		{"lateness", measureLateness},
		{"turns", measureTurns},
		{"aborts", measureAborts},
		{"hello", measureHellos},
		{"arrivals", measureArrivals},
		{"idle", measureIdle},
		{"hostile", measureHostile},
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		if err := beWorker(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := conduct(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// beWorker is all a child process does. An argument is the folder for its
// profile.
func beWorker(args []string) error {
	if len(args) > 0 {
		stop, err := profile(args[0])
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := raiseFiles(); err != nil {
		return err
	}
	actions, err := loadActions()
	if err != nil {
		return err
	}
	for name, do := range serverActions() {
		actions[name] = do
	}
	return work(os.Stdin, os.Stdout, actions)
}

var errBusy = errors.New("the machine is busy: figures would be noise")

// conduct measures what args ask for and writes tables to out.
func conduct(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "rehearse in a minute, with one sample of each")
	only := flags.String("only", "", "measure only what has `text` in its name")
	publishing := flags.Bool("write", false, "put the figures into "+document+"; needs a quiet machine")
	folder := flags.String("profile", "", "have every worker write a processor profile into this `folder`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *folder != "" {
		ctx = context.WithValue(ctx, profiles{}, *folder)
	}
	m, err := thisMachine()
	if err != nil {
		return err
	}
	p := fullPlan()
	if *quick {
		p = quickPlan()
	}
	switch {
	case *publishing && (*quick || *only != "" || *folder != ""):
		return errors.New("-write publishes whole runs only: leave out -quick, -only and -profile")
	case *publishing && m.Load > quiet:
		return fmt.Errorf("%w: load average %.2f, at most %.1f; stop what else runs and wait a minute", errBusy, m.Load, quiet)
	}
	fmt.Fprintln(out, m)
	if m.Load > quiet {
		fmt.Fprintf(out, "The machine is busy: take what follows for noise.\n")
	}
	before, err := stolen()
	if err != nil {
		return err
	}
	start := time.Now()
	tables, speeds, err := measureAll(ctx, p, *only, out)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := stolen()
	if err != nil {
		return err
	}
	part := (after - before).Seconds() / took.Seconds() / float64(m.Cores)
	summarise(out, tables, took, part)
	fmt.Fprintln(out, speeds)
	switch {
	case !*publishing:
		return nil
	case !speeds.steady():
		return fmt.Errorf("%w: its speed changed during the run, %v; not written", errBusy, speeds)
	case part > stolenLimit:
		return fmt.Errorf("%w: another machine took %.1f %% of the processors; not written", errBusy, 100*part)
	}
	return publish(write(m, speeds, took.Round(time.Second).String(), tables))
}

// measureAll runs the measurements whose name contains only, each writing its
// table as soon as it is known. The machine's speed is taken before each and at
// the end.
func measureAll(ctx context.Context, p plan, only string, out io.Writer) ([]table, paces, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	var tables []table
	var speeds paces
	look := func() error {
		speed, err := pace()
		speeds = append(speeds, speed)
		return err
	}
	for _, m := range measurements() {
		if !strings.Contains(m.name, only) {
			continue
		}
		if err := look(); err != nil {
			return nil, nil, err
		}
		start := time.Now()
		t, err := m.run(ctx, p)
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s: %w; everything may take %v", m.name, ctx.Err(), p.limit)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(out, "\n%s\n(%s: %.1f s)\n", t.markdown(), m.name, time.Since(start).Seconds())
		tables = append(tables, t)
	}
	if len(tables) == 0 {
		return nil, nil, fmt.Errorf("no measurement has %q in its name", only)
	}
	err := look()
	return tables, speeds, err
}

// summarise says how many limits were met.
func summarise(out io.Writer, tables []table, took time.Duration, stolen float64) {
	met, missed := 0, 0
	for _, t := range tables {
		for _, f := range t.Figures {
			switch {
			case f.Limit.kind == "":
			case f.Limit.met(f.median()):
				met++
			default:
				missed++
				fmt.Fprintf(out, "missed: %s: %s, %s: %s, limit %s %s\n",
					t.Title, f.What, f.Unit, number(f.median()), f.Limit.kind, number(f.Limit.value))
			}
		}
	}
	fmt.Fprintf(out, "%d limits met, %d missed, in %.0f s; time stolen by other machines: %.2f %%\n",
		met, missed, took.Seconds(), 100*stolen)
}
