package openaitest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/hraban/opus"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4/pkg/media/oggwriter"
)

const (
	// SpeechRate is the rate of all speech, in Hz.
	SpeechRate = 24000

	opusFrame   = SpeechRate / 50 // samples of 20 ms, what OpenAI's opus holds
	speechPiece = 1111            // bytes of speech sent at a time: odd, to split samples
	maxInput    = 4096            // characters of a text to speak, as OpenAI has it
	silence     = SpeechRate / 10 // samples a letter, where no one speaks
)

// A Transcription is a request to audio/transcriptions.
type Transcription struct {
	Model, Language, Prompt string
	PCM                     []int16
	Rate                    int // Hz
}

// transcribe answers a request to audio/transcriptions.
func (s *Service) transcribe(a *answering) {
	t, err := parseTranscription(a.r.Header.Get("Content-Type"), a.body)
	if err != nil {
		refuse(a.w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.known(a.w, t.Model) {
		return
	}
	text := ""
	if s.Transcribe != nil {
		text = s.Transcribe(t)
	}
	answerJSON(a.w, http.StatusOK, map[string]any{"text": text})
}

// parseTranscription reads the form of a request to audio/transcriptions.
func parseTranscription(contentType string, body []byte) (Transcription, error) {
	var t Transcription
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/form-data" {
		return t, errors.New("the body is not multipart/form-data")
	}
	form, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(maxBody)
	if err != nil {
		return t, fmt.Errorf("the form cannot be read: %w", err)
	}
	field := func(name string) string {
		if v := form.Value[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	t.Model, t.Language, t.Prompt = field("model"), field("language"), field("prompt")
	if f := field("response_format"); f != "" && f != "json" {
		return t, errors.New("response_format is not json")
	}
	if len(form.File["file"]) != 1 {
		return t, errors.New("the form has no file")
	}
	file, err := form.File["file"][0].Open()
	if err != nil {
		return t, err
	}
	defer file.Close()
	wav, err := io.ReadAll(file)
	if err != nil {
		return t, err
	}
	t.PCM, t.Rate, err = parseWAV(wav)
	if err == nil && len(t.PCM) < t.Rate/10 {
		err = errors.New("audio file is too short. Minimum audio length is 0.1 seconds")
	}
	return t, err
}

// parseWAV reads the plainest of WAV files, 16-bit mono with every length in its
// header right, and takes offence at any other.
func parseWAV(wav []byte) (pcm []int16, rate int, err error) {
	le := binary.LittleEndian
	switch {
	case len(wav) < 44 || string(wav[:4]) != "RIFF" || string(wav[8:16]) != "WAVEfmt " || string(wav[36:40]) != "data":
		return nil, 0, errors.New("invalid file format: not a plain WAV file")
	case int(le.Uint32(wav[4:])) != len(wav)-8 || int(le.Uint32(wav[40:])) != len(wav)-44:
		return nil, 0, errors.New("invalid file format: the lengths in the WAV header are wrong")
	case le.Uint32(wav[16:]) != 16 || le.Uint16(wav[20:]) != 1 || le.Uint16(wav[22:]) != 1 || le.Uint16(wav[34:]) != 16:
		return nil, 0, errors.New("invalid file format: the WAV file is not 16-bit mono PCM")
	}
	rate = int(le.Uint32(wav[24:]))
	if rate == 0 || int(le.Uint32(wav[28:])) != 2*rate || le.Uint16(wav[32:]) != 2 {
		return nil, 0, errors.New("invalid file format: the rates in the WAV header are wrong")
	}
	pcm = make([]int16, (len(wav)-44)/2)
	for i := range pcm {
		pcm[i] = int16(le.Uint16(wav[44+2*i:]))
	}
	return pcm, rate, nil
}

// speak answers a request to audio/speech in pcm, wav or opus.
func (s *Service) speak(a *answering) {
	var req struct {
		Model  string `json:"model"`
		Input  string `json:"input"`
		Voice  string `json:"voice"`
		Format string `json:"response_format"`
	}
	if err := json.Unmarshal(a.body, &req); err != nil {
		refuse(a.w, http.StatusBadRequest, "we could not parse the JSON body of your request: "+err.Error())
		return
	}
	if !s.known(a.w, req.Model) {
		return
	}
	if req.Voice == "" || req.Input == "" || len([]rune(req.Input)) > maxInput {
		refuse(a.w, http.StatusBadRequest, "voice and input must be given and input have at most 4096 characters")
		return
	}
	pcm := make([]int16, silence*len([]rune(req.Input)))
	if s.Speak != nil {
		pcm = s.Speak(req.Input)
	}
	content, speech, err := encodeSpeech(req.Format, pcm)
	if err != nil {
		refuse(a.w, http.StatusBadRequest, err.Error())
		return
	}
	a.w.Header().Set("Content-Type", content)
	a.w.WriteHeader(http.StatusOK)
	for len(speech) > 0 {
		n := min(speechPiece, len(speech))
		if !a.send(speech[:n]) || !a.sentOne() {
			return
		}
		speech = speech[n:]
	}
}

// encodeSpeech returns PCM in a format and its content type.
func encodeSpeech(format string, pcm []int16) (content string, speech []byte, err error) {
	switch format {
	case "pcm":
		return "audio/pcm", appendPCM(nil, pcm), nil
	case "wav":
		return "audio/wav", appendPCM(streamedWAVHeader(), pcm), nil
	case "opus":
		speech, err = encodeOgg(pcm)
		return "audio/ogg", speech, err
	}
	return "", nil, fmt.Errorf("response_format %q is not one of pcm, wav and opus", format)
}

func appendPCM(b []byte, pcm []int16) []byte {
	for _, sample := range pcm {
		b = binary.LittleEndian.AppendUint16(b, uint16(sample))
	}
	return b
}

// streamedWAVHeader returns the header of a WAV file whose length is not known
// when it begins, with the lengths that services write then.
func streamedWAVHeader() []byte {
	le := binary.LittleEndian
	h := append([]byte("RIFF"), 0xff, 0xff, 0xff, 0xff)
	h = append(h, "WAVEfmt "...)
	h = le.AppendUint32(h, 16)
	h = le.AppendUint16(h, 1)
	h = le.AppendUint16(h, 1)
	h = le.AppendUint32(h, SpeechRate)
	h = le.AppendUint32(h, 2*SpeechRate)
	h = le.AppendUint16(h, 2)
	h = le.AppendUint16(h, 16)
	h = append(h, "data"...)
	return append(h, 0xff, 0xff, 0xff, 0xff)
}

// encodeOgg returns PCM as an Ogg Opus file of 20 ms mono packets; the last is
// filled up with silence.
func encodeOgg(pcm []int16) ([]byte, error) {
	var file bytes.Buffer
	ogg, err := oggwriter.NewWith(&file, 48000, 1)
	if err != nil {
		return nil, err
	}
	encoder, err := opus.NewEncoder(SpeechRate, 1, opus.AppAudio)
	if err != nil {
		return nil, err
	}
	for n := 0; n*opusFrame < len(pcm); n++ {
		frame := make([]int16, opusFrame)
		copy(frame, pcm[n*opusFrame:])
		packet := make([]byte, 1275) // the longest Opus frame, RFC 6716 §3.4
		size, err := encoder.Encode(frame, packet)
		if err != nil {
			return nil, err
		}
		// Ogg counts Opus time at 48 kHz whatever the rate, RFC 7845 §4.
		header := rtp.Header{Version: 2, SequenceNumber: uint16(n), Timestamp: uint32(n * 960)}
		if err := ogg.WriteRTP(&rtp.Packet{Header: header, Payload: packet[:size]}); err != nil {
			return nil, err
		}
	}
	if err := ogg.Close(); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}
