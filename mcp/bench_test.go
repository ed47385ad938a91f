package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
	"parley/mcp"
)

// promptDevice answers at once, in the sender's goroutine, with the tools of a
// board with a screen and a camera.
func promptDevice(id protocol.DeviceID, page func() string, cfg mcp.Config, log *slog.Logger) *mcp.Device {
	var d *mcp.Device
	d = mcp.NewDevice(id, func(sent json.RawMessage) error {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(sent, &m); err != nil {
			return err
		}
		result := `{"content":[{"type":"text","text":"true"}],"isError":false}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"2.2.1"}}`
		case "tools/list":
			result = page()
		}
		if m.ID != nil {
			d.Receive(json.RawMessage(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`))
		}
		return nil
	}, cfg, log)
	return d
}

// always returns the same page.
func always(page string) func() string { return func() string { return page } }

// boardPage is a tools/list result of 14 tools in some 6,000 bytes.
func boardPage() string {
	var tools []string
	for i := range 14 {
		tools = append(tools, fakeTool{
			name: fmt.Sprintf("self.part%02d.do_something", i), description: strings.Repeat("What it is good for. ", 12),
			properties: `"value":{"type":"integer","minimum":0,"maximum":100}`, required: []string{"value"}, userOnly: i > 8,
		}.json())
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

// BenchmarkIdleDevices reports what a device costs that has told its tools and
// is not being called: heap bytes and goroutines. Its own send function is
// counted, too.
func BenchmarkIdleDevices(b *testing.B) {
	const count = 1000
	page, cfg, log := boardPage(), mcp.Config{Counters: new(mcp.Counters)}, discard()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		devices := make([]*mcp.Device, count)
		for i := range devices {
			devices[i] = promptDevice(protocol.DeviceID(fmt.Sprintf("a0:85:e3:f4:%02x:%02x", i>>8, i&0xff)), always(page), cfg, log)
			devices[i].Start()
			<-devices[i].Ready()
		}
		for range 3 {
			runtime.GC() // sessions are ending
		}
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "heap-B/device")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/count, "stack-B/device")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/count, "goroutines/device")
		for _, d := range devices {
			d.Close()
		}
	}
}

// BenchmarkDiscover is a device's whole listing, from connect to idle.
func BenchmarkDiscover(b *testing.B) {
	page := boardPage()
	b.ReportAllocs()
	for b.Loop() {
		d := promptDevice("a0:85:e3:f4:49:34", always(page), mcp.Config{}, discard())
		d.Start()
		<-d.Ready()
		d.Close()
	}
}

// BenchmarkCall is one call of an idle device, SDK session and all.
func BenchmarkCall(b *testing.B) {
	d := promptDevice("a0:85:e3:f4:49:34", always(boardPage()), mcp.Config{}, discard())
	defer d.Close()
	args := json.RawMessage(`{"value":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Call(b.Context(), "self.part03.do_something", args); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTools is what each turn of a conversation asks.
func BenchmarkTools(b *testing.B) {
	d := promptDevice("a0:85:e3:f4:49:34", always(boardPage()), mcp.Config{}, discard())
	defer d.Close()
	d.Start()
	<-d.Ready()
	set, err := mcp.NewSet(mcp.Rules{Deny: []string{"*camera*"}}, mcp.Member{Label: "device", Source: d})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(set.Tools()) != 9 {
			b.Fatal("tools are missing")
		}
	}
}

// rowOf is a source of n tools with a version, as a Client is.
func rowOf(label string, n int) *counted {
	c := &counted{shelf: &shelf{label: label}}
	for i := range n {
		c.tools = append(c.tools, mcp.Tool{Name: fmt.Sprint(label, "_", i), Description: "What it is good for.", Schema: json.RawMessage(`{"type":"object","properties":{"value":{"type":"integer"}}}`)})
	}
	return c
}

// fullSets are sets of one device with 50 tools each and 10 shared servers of 20.
func fullSets(tb testing.TB, count int) []*mcp.Set {
	tb.Helper()
	var tools []string
	for i := range 50 {
		tools = append(tools, fakeTool{name: fmt.Sprintf("self.part%02d.do_something", i), description: strings.Repeat("What it is good for. ", 8), properties: `"value":{"type":"integer"}`}.json())
	}
	page := `{"tools":[` + strings.Join(tools, ",") + `]}`
	var servers []mcp.Member
	for i := range 10 {
		label := fmt.Sprint("server", i)
		servers = append(servers, mcp.Member{Label: label, Source: rowOf(label, 20)})
	}
	sets := make([]*mcp.Set, count)
	for i := range sets {
		d := promptDevice(protocol.DeviceID(fmt.Sprintf("a0:85:e3:f4:00:%02x", i)), always(page), mcp.Config{}, discard())
		tb.Cleanup(d.Close)
		d.Start()
		<-d.Ready()
		set, err := mcp.NewSet(mcp.Rules{Allow: []string{"*"}, Deny: []string{"*camera*", "server3:*_1"}}, append([]mcp.Member{{Label: "device", Source: d}}, servers...)...)
		if err != nil {
			tb.Fatal(err)
		}
		sets[i] = set
	}
	return sets
}

// BenchmarkFullSet is what a request asks whose role has 250 tools: of a set that
// has been asked before, and of a new one.
func BenchmarkFullSet(b *testing.B) {
	b.Run("again", func(b *testing.B) {
		set := fullSets(b, 1)[0]
		b.ReportAllocs()
		for b.Loop() {
			if len(set.Tools()) != 249 {
				b.Fatal("tools are missing")
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		source := rowOf("server", 250)
		b.ReportAllocs()
		for b.Loop() {
			set, err := mcp.NewSet(mcp.Rules{Deny: []string{"*camera*"}}, mcp.Member{Label: "server", Source: source})
			if err != nil || len(set.Tools()) != 250 {
				b.Fatal("tools are missing")
			}
		}
	})
	b.Run("hundred", func(b *testing.B) {
		sets := fullSets(b, 100)
		b.ReportAllocs()
		for b.Loop() {
			for _, set := range sets {
				if len(set.Tools()) != 249 {
					b.Fatal("tools are missing")
				}
			}
		}
	})
}

// BenchmarkFullDevices reports the heap of a device with 50 tools: where all are
// of one firmware, and where no two are.
func BenchmarkFullDevices(b *testing.B) {
	for name, shared := range map[string]bool{"shared": true, "own": false} {
		b.Run(name, func(b *testing.B) {
			const count = 200
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				devices := make([]*mcp.Device, count)
				for i := range devices {
					board := 0
					if !shared {
						board = i
					}
					var tools []string
					for j := range 50 {
						tools = append(tools, fakeTool{name: fmt.Sprintf("self.part%02d.do_something", j), description: fmt.Sprint(board, strings.Repeat(" What it is good for.", 8)), properties: `"value":{"type":"integer","minimum":0,"maximum":100}`}.json())
					}
					page := `{"tools":[` + strings.Join(tools, ",") + `]}`
					devices[i] = promptDevice("a0:85:e3:f4:49:34", func() string { return page }, mcp.Config{}, discard())
					devices[i].Start()
					<-devices[i].Ready()
					page = "" // the device's own, and not Parley's
				}
				for range 3 {
					runtime.GC() // sessions are ending
				}
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "heap-B/device")
				for _, d := range devices {
					d.Close()
				}
			}
		})
	}
}

// BenchmarkClientCall is one call of a server over a pair of pipes.
func BenchmarkClientCall(b *testing.B) {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	server := standardServer()
	session, err := server.Connect(b.Context(), &sdk.IOTransport{Reader: toServer, Writer: fromServer}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	ready := make(chan struct{}, 4)
	c := newClient(mcp.ClientConfig{OnChange: func() { ready <- struct{}{} }})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx, mcp.LineTransport(toClient, fromClient, 0)) }()
	defer func() { cancel(); <-done }()
	<-ready
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), "b", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStrictSchema reduces a schema as Python servers send them.
func BenchmarkStrictSchema(b *testing.B) {
	raw := json.RawMessage(`{"$defs":{"U":{"enum":["C","F"],"title":"U","type":"string"}},"properties":{"city":{"title":"City","type":"string"},"unit":{"allOf":[{"$ref":"#/$defs/U"}],"default":"C"},"days":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null}},"required":["city"],"title":"forecastArguments","type":"object"}`)
	b.ReportAllocs()
	for b.Loop() {
		mcp.StrictSchema(raw)
	}
}
