//go:build linux

// Command bench measures the server and compares what it finds with stated
// limits. docs/performance.md says what each figure means.
//
//	go run ./internal/bench            everything, in less than six minutes
//	go run ./internal/bench -quick     a rehearsal of a minute, with one sample of each
//	go run ./internal/bench -only udp  the measurements whose name contains udp
//	go run ./internal/bench -write     and put the figures into docs/performance.md
//
// The process that is started only conducts. It runs itself again for what is
// measured and for what makes the load, so that processor time and memory
// belong to one side, and speaks to these workers in lines of JSON; see
// worker.go. Reading order: main.go, worker.go, then server side: house.go,
// voices.go, relay.go; load side: phone.go, sink.go, fleet.go, generator.go,
// flood.go; then what is asked of them: the files measure_*.go.
//
// It needs Linux: time stamps of received packets are the kernel's, so that a
// busy load generator does not make the server look late.
package main
