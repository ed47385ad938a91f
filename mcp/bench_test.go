package mcp_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"parley/internal/protocol"
	"parley/mcp"
)

// promptDevice answers at once, in the sender's goroutine, with the tools of a
// board with a screen and a camera.
func promptDevice(id protocol.DeviceID, page string, cfg mcp.Config, log *slog.Logger) *mcp.Device {
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
			result = page
		}
		if m.ID != nil {
			d.Receive(json.RawMessage(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`))
		}
		return nil
	}, cfg, log)
	return d
}

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
			devices[i] = promptDevice(protocol.DeviceID(fmt.Sprintf("a0:85:e3:f4:%02x:%02x", i>>8, i&0xff)), page, cfg, log)
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
		d := promptDevice("a0:85:e3:f4:49:34", page, mcp.Config{}, discard())
		d.Start()
		<-d.Ready()
		d.Close()
	}
}

// BenchmarkCall is one call of an idle device, SDK session and all.
func BenchmarkCall(b *testing.B) {
	d := promptDevice("a0:85:e3:f4:49:34", boardPage(), mcp.Config{}, discard())
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
	d := promptDevice("a0:85:e3:f4:49:34", boardPage(), mcp.Config{}, discard())
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
