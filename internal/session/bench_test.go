package session_test

import (
	"fmt"
	"log/slog"
	"testing"

	"parley/internal/protocol"
	"parley/internal/session"
	"parley/internal/simnet"
	"parley/udpaudio"
)

// BenchmarkDevices lists ten thousand connected devices, as a page of the API
// does.
func BenchmarkDevices(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	socket, err := simnet.New(1).ListenUDP(udpAddr)
	if err != nil {
		b.Fatal(err)
	}
	cfg := session.DefaultConfig()
	cfg.Roles = func(protocol.DeviceID) *session.Role { return &session.Role{Name: "test"} }
	s := session.New(cfg, udpaudio.New(socket, udpaudio.Config{}, log), log)
	for i := range 10_000 {
		r := s.Attach(&wire{id: protocol.DeviceID(fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff))})
		defer r.Disconnected(nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := len(s.Devices()); got != 10_000 {
			b.Fatal(got)
		}
	}
}
