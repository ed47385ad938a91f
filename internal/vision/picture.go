package vision

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
)

// A Picture is what a device has taken. MIMEType is what its bytes say, whatever
// the device called it: image/jpeg, image/png, image/webp or image/gif.
type Picture struct {
	MIMEType      string
	Data          []byte
	Width, Height int // pixels
}

// examine finds out what a picture is, from its header: nothing is decoded.
func examine(data []byte) (Picture, *fault) {
	read := map[string]func([]byte) (image.Config, error){
		"image/jpeg": func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
		"image/png":  func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
		"image/gif":  func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
		"image/webp": webpConfig,
	}
	kind := http.DetectContentType(data)
	config := read[kind]
	if config == nil {
		return Picture{}, &fault{http.StatusUnsupportedMediaType, "part file: not a picture in JPEG, PNG, WebP or GIF"}
	}
	c, err := config(data)
	switch {
	case err != nil:
		return Picture{}, &fault{http.StatusUnsupportedMediaType, "part file: the picture is broken: " + err.Error()}
	case c.Width < 1 || c.Height < 1:
		return Picture{}, &fault{http.StatusUnsupportedMediaType, "part file: the picture is empty"}
	case c.Width > MaxSide || c.Height > MaxSide:
		return Picture{}, &fault{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("part file: the picture has %d x %d pixels; at most %d a side are taken", c.Width, c.Height, MaxSide)}
	}
	return Picture{kind, data, c.Width, c.Height}, nil
}

var errWebP = errors.New("webp: no valid header")

// webpConfig reads the size of a WebP picture: RFC 9649, sections 2.5 to 2.7.
func webpConfig(b []byte) (image.Config, error) {
	const header = 12 + 8 // RIFF, size, WEBP; the first chunk's name and size
	if len(b) < header+10 {
		return image.Config{}, errWebP
	}
	var c image.Config
	switch chunk := b[header:]; string(b[12:16]) {
	case "VP8 ": // RFC 6386, section 9.1: a key frame's tag, start code, and 14 bits each
		if chunk[0]&1 != 0 || !bytes.Equal(chunk[3:6], []byte{0x9d, 0x01, 0x2a}) {
			return c, errWebP
		}
		c.Width = int(binary.LittleEndian.Uint16(chunk[6:]) & 0x3fff)
		c.Height = int(binary.LittleEndian.Uint16(chunk[8:]) & 0x3fff)
	case "VP8L": // a signature, then 14 bits each, less one
		if chunk[0] != 0x2f {
			return c, errWebP
		}
		bits := binary.LittleEndian.Uint32(chunk[1:])
		c.Width, c.Height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
	case "VP8X": // flags, then the canvas in 24 bits each, less one
		c.Width = (int(chunk[4]) | int(chunk[5])<<8 | int(chunk[6])<<16) + 1
		c.Height = (int(chunk[7]) | int(chunk[8])<<8 | int(chunk[9])<<16) + 1
	default:
		return c, errWebP
	}
	return c, nil
}
