//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// twoCores refuses to measure one side on a core of its own where there is none.
func twoCores() error {
	if runtime.NumCPU() < 2 {
		return errors.New("needs two processors: one for the server, one for the load")
	}
	return nil
}

// measureHellos looks at how soon a device is answered.
func measureHellos(ctx context.Context, p plan) (table, error) {
	t := table{Title: "Hello, with 1,000 devices connected"}
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	var addr string
	if err := s.server.call("house", endless(false), &addr); err != nil {
		return t, err
	}
	if err := s.load.call("connect", boarding{MQTT: addr, Devices: 1000}, nil); err != nil {
		return t, err
	}
	time.Sleep(500 * time.Millisecond) // the devices tell their tools
	var q []quantiles
	if err := s.load.call("hellos", p.samples, &q); err != nil {
		return t, err
	}
	t.Figures = timings("hello to reply", q, limit{}, atMost(2), limit{})
	return t, nil
}

// measureArrivals looks at how fast devices can come.
func measureArrivals(ctx context.Context, p plan) (table, error) {
	t := table{Title: "Devices that connect and say hello, load included"}
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	var addr string
	if err := s.server.call("house", endless(false), &addr); err != nil {
		return t, err
	}
	var rates, cpu []float64
	for range p.samples {
		var rate float64
		var before, after usage
		if err := s.server.call("usage", nil, &before); err != nil {
			return t, err
		}
		if err := s.load.call("connect", boarding{MQTT: addr, Devices: p.arrivals, Hello: true}, &rate); err != nil {
			return t, err
		}
		if err := s.server.call("usage", nil, &after); err != nil {
			return t, err
		}
		rates = append(rates, rate)
		cpu = append(cpu, (after.CPU-before.CPU)/float64(p.arrivals)*1e6)
		if err := s.leave(); err != nil {
			return t, err
		}
	}
	t.Figures = []figure{
		{"TCP, CONNECT with a signature checked, hello, session open", "devices/s", rates, atLeast(5000)},
		{"server", "CPU-µs per device", cpu, limit{}},
	}
	return t, nil
}

// leave disconnects all devices and waits until the server has noticed.
func (s *staff) leave() error {
	if err := s.load.call("disconnect", nil, nil); err != nil {
		return err
	}
	var c houseCounts
	for range 500 {
		if err := s.server.call("house counts", nil, &c); err != nil {
			return err
		}
		if c.Devices == 0 && c.Sessions == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%d devices and %d sessions are left after 5 s", c.Devices, c.Sessions)
}

// measureIdle looks at what connected devices cost that do nothing.
func measureIdle(ctx context.Context, p plan) (table, error) {
	t := table{Title: fmt.Sprintf("Memory of an idle device, after a storm of %s connects", number(float64(p.storm)))}
	var asIs, collected []float64
	for range p.samples {
		one, two, err := idle(ctx, p.storm)
		if err != nil {
			return t, err
		}
		asIs, collected = append(asIs, one), append(collected, two)
	}
	t.Figures = []figure{
		{"resident, 3 s after", "KiB per device", asIs, atMost(12)},
		{"resident, after a collection", "KiB per device", collected, atMost(12)},
	}
	return t, nil
}

// idle connects devices to a new server and returns what each has added to its
// resident memory, in KiB, as it is and after unused memory was given back.
func idle(ctx context.Context, devices int) (asIs, collected float64, err error) {
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return 0, 0, err
	}
	defer s.dismiss()
	var addr string
	if err := s.server.call("house", endless(false), &addr); err != nil {
		return 0, 0, err
	}
	var before, after, least usage
	var counts houseCounts
	if err := s.server.call("collect", nil, &before); err != nil {
		return 0, 0, err
	}
	if err := s.load.call("connect", boarding{MQTT: addr, Devices: devices}, nil); err != nil {
		return 0, 0, err
	}
	time.Sleep(3 * time.Second)
	if err := s.server.call("house counts", nil, &counts); err != nil {
		return 0, 0, err
	}
	after = counts.usage
	if counts.Devices != uint64(devices) {
		return 0, 0, fmt.Errorf("%d of %d devices are connected", counts.Devices, devices)
	}
	if err := s.server.call("collect", nil, &least); err != nil {
		return 0, 0, err
	}
	each := func(u usage) float64 { return float64(u.Resident-before.Resident) / float64(devices) / 1024 }
	return each(after), each(least), nil
}
