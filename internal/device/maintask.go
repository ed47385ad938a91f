package device

import (
	"context"
	"sync"
)

// event bits of the main task, handled in the order of their values in each
// pass, as MAIN_EVENT_* are in the firmware's loop.
type eventBits uint

const (
	evError eventBits = 1 << iota
	evState
	evDrained
	evToggle
	evButtonDown
	evButtonUp
	evSendAudio
	evWake
)

// maxTasks bounds the work waiting for the main task. The firmware's list is
// bounded by its memory; here a server that floods a frozen device is counted.
const maxTasks = 1024

// mainTask is what waits for the main goroutine.
type mainTask struct {
	mu      sync.Mutex
	bits    eventBits
	tasks   []func() // the firmware's Schedule
	wakes   wakeCall // of the last evWake
	overrun int64
	wake    chan struct{} // capacity 1: there is something to do

	// Owned by the main goroutine.
	pendingListen bool // listen start is due when playback has drained
	restartListen bool // a wake word while speaking: listen start is due although the microphone may be on
}

// A wakeCall is a heard wake word with the audio before it.
type wakeCall struct {
	word    string
	preroll []int16
}

// post sets event bits for the main task.
func (d *Device) post(b eventBits) {
	d.main.mu.Lock()
	d.main.bits |= b
	d.main.mu.Unlock()
	signal(d.main.wake)
}

// schedule queues work for the main task.
func (d *Device) schedule(f func()) {
	d.main.mu.Lock()
	if len(d.main.tasks) < maxTasks {
		d.main.tasks = append(d.main.tasks, f)
	} else {
		d.main.overrun++
	}
	d.main.mu.Unlock()
	signal(d.main.wake)
}

// do runs f on the main task and waits for it.
func (d *Device) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	d.schedule(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-d.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runMain is the firmware's main task. It ends when the device is closed.
func (d *Device) runMain() {
	for {
		select {
		case <-d.ctx.Done():
			d.mic.stop()
			return
		case <-d.main.wake:
		}
		d.main.mu.Lock()
		bits, scheduled := d.main.bits, len(d.main.tasks) > 0
		d.main.bits = 0
		d.main.mu.Unlock()
		for b := evError; b <= evWake; b <<= 1 {
			if bits&b != 0 && d.ctx.Err() == nil {
				d.handleEvent(b)
			}
		}
		if !scheduled {
			continue
		}
		d.main.mu.Lock()
		tasks := d.main.tasks
		d.main.tasks = nil
		d.main.mu.Unlock()
		for _, task := range tasks {
			if d.ctx.Err() == nil {
				task()
			}
		}
	}
}

func (d *Device) handleEvent(b eventBits) {
	switch b {
	case evError:
		d.setState(Idle)
	case evState:
		d.enter()
	case evDrained:
		if d.main.pendingListen && d.State() == Listening {
			d.main.pendingListen = false
			d.startListening()
		}
	case evToggle:
		d.toggle()
	case evButtonDown:
		d.buttonDown()
	case evButtonUp:
		d.buttonUp()
	case evSendAudio:
		d.sendAudio()
	case evWake:
		d.main.mu.Lock()
		w := d.main.wakes
		d.main.mu.Unlock()
		d.wakeUp(w)
	}
}
