package session_test

import (
	"testing"
	"testing/synctest"

	"parley/broker"
	"parley/internal/session"
)

// deaf is the link of a device that is only listened to.
type deaf struct{}

func (deaf) Device() broker.Device { return broker.Device{ID: deviceOne} }
func (deaf) Send([]byte) error     { return nil }
func (deaf) Close(string)          {}

// What a device tells by itself reaches whoever watches.
func TestNotificationsOfDevices(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var got []session.Event
		h := newHouse(t, func(c *session.Config, _ *session.Role) {
			c.OnEvent = func(e session.Event) {
				if e.Kind == session.EventNotification {
					got = append(got, e)
				}
			}
		})
		r := h.sessions.Attach(deaf{})
		r.Receive([]byte(`{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","method":"notifications/battery","params":{"level":5}}}`))
		synctest.Wait()
		r.Disconnected(nil)
		if len(got) != 1 || got[0].Detail != "notifications/battery" || string(got[0].Params) != `{"level":5}` || got[0].Device.ID != deviceOne {
			t.Errorf("events %+v", got)
		}
	})
}
