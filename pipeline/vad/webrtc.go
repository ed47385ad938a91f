package vad

/*
// The archive by its file name: the shared library would have to be installed
// where the program runs, and one line serves static binaries, too.
#cgo LDFLAGS: -l:libwebrtc_audio_processing.a -lm
#include <stddef.h>
#include <stdint.h>

// The declarations of webrtc/common_audio/vad/include/webrtc_vad.h, which
// Debian's libwebrtc-audio-processing-dev 0.3 does not install.
typedef struct WebRtcVadInst VadInst;
VadInst *WebRtcVad_Create(void);
void WebRtcVad_Free(VadInst *handle);
int WebRtcVad_Init(VadInst *handle);
int WebRtcVad_set_mode(VadInst *handle, int mode);
int WebRtcVad_Process(VadInst *handle, int rate, const int16_t *frame, size_t samples);
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"parley/pipeline"
)

// A webRTC is WebRTC's voice activity detector: Gaussian mixture models of
// speech and noise over the energies of six bands, in fixed point.
type webRTC struct {
	handle  *C.VadInst // C memory, 736 bytes; nil once closed
	cleanup runtime.Cleanup
}

// newWebRTC returns a detector in the given mode, 0 (lenient) to 3 (strict).
func newWebRTC(mode int) (*webRTC, error) {
	handle := C.WebRtcVad_Create()
	if handle == nil {
		return nil, errors.New("voice activity detector: no memory")
	}
	w := &webRTC{handle: handle}
	w.cleanup = runtime.AddCleanup(w, func(h *C.VadInst) { C.WebRtcVad_Free(h) }, handle)
	if C.WebRtcVad_Init(handle) != 0 || C.WebRtcVad_set_mode(handle, C.int(mode)) != 0 {
		w.close()
		return nil, fmt.Errorf("voice activity detector: mode %d refused, want 0 to 3", mode)
	}
	return w, nil
}

// speech judges one frame of frameSamples.
func (w *webRTC) speech(frame []int16) bool {
	if w.handle == nil {
		return false
	}
	r := C.WebRtcVad_Process(w.handle, pipeline.SampleRate, (*C.int16_t)(unsafe.Pointer(&frame[0])), C.size_t(len(frame)))
	runtime.KeepAlive(w)
	return r == 1
}

func (w *webRTC) close() {
	if w.handle == nil {
		return
	}
	w.cleanup.Stop()
	C.WebRtcVad_Free(w.handle)
	w.handle = nil
}
