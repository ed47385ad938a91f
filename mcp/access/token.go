package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"parley/internal/protocol"
)

// Errors of tokens, wrapped with the circumstances. Their texts are what a pipe is
// told; match them with errors.Is.
var (
	// ErrMalformed means that a text is no token of this version.
	ErrMalformed = errors.New("token malformed")
	// ErrSignature means that a token was not signed with this key.
	ErrSignature = errors.New("token not signed by this server")
	// ErrExpired means that a token's time is over.
	ErrExpired = errors.New("token expired")
	// ErrRevoked means that a token's id is on the list of revoked ones.
	ErrRevoked = errors.New("token revoked")
	// ErrKey means that a key is too short to sign with.
	ErrKey = errors.New("key too short")
	// ErrScope means that a scope says nothing, or too much.
	ErrScope = errors.New("bad scope")
)

const (
	// MinKey is the shortest key that signs tokens, in bytes. Whoever holds a
	// token can try keys against it, without asking anybody.
	MinKey = 16
	// maxToken bounds a token in bytes. The longest that is minted has some 300.
	maxToken = 512
	// maxName bounds the id of a token and the name of a role, in bytes.
	maxName = 64
	// version begins every token, so that another form can follow.
	version = "pa1."
	// purpose is signed with every token, so that a signature made for something
	// else with the same key is none for this.
	purpose = "parley access token\x00"
)

// A Scope is what a token says: what it is called, whose conversations its holder
// may lend tools to, and until when. Exactly one of Device, Role and All is set.
type Scope struct {
	// ID names the token in logs and in the list of revoked ones: 1 to 64 letters,
	// digits, hyphens and underscores. Two tokens of one id are revoked together.
	ID string
	// Device is the one device whose conversations have the tools.
	Device protocol.DeviceID
	// Role is the one role whose conversations have them; at most 64 bytes.
	Role string
	// All means every conversation.
	All bool
	// Expires is when the token ends, in whole seconds; zero means never.
	Expires time.Time
}

// NewID returns a token id nobody else has: 10 letters and digits.
func NewID() string { return strings.ToLower(rand.Text()[:10]) }

// String says for whom the token is, as people read it: "device a0:85:e3:f4:49:34",
// "role kitchen" or "everybody".
func (s Scope) String() string {
	switch {
	case s.Device != "":
		return "device " + string(s.Device)
	case s.Role != "":
		return "role " + s.Role
	}
	return "everybody"
}

// Targets as they stand in a token; a [Point] finds its connections by them.
const (
	targetAll    = "*"
	targetDevice = "device:"
	targetRole   = "role:"
)

func (s Scope) target() string {
	switch {
	case s.Device != "":
		return targetDevice + string(s.Device)
	case s.Role != "":
		return targetRole + s.Role
	}
	return targetAll
}

// check reports what keeps s from being a token's.
func (s Scope) check() error {
	if !validID(s.ID) {
		return fmt.Errorf("%w: id %q; use 1 to %d letters, digits, hyphens and underscores", ErrScope, clip(s.ID), maxName)
	}
	set := 0
	for _, is := range []bool{s.Device != "", s.Role != "", s.All} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("%w: %d of device, role and all are given; give exactly one", ErrScope, set)
	}
	if id, err := protocol.ParseDeviceID(string(s.Device)); s.Device != "" && (err != nil || id != s.Device) {
		return fmt.Errorf("%w: device %q; write a MAC address as aa:bb:cc:dd:ee:ff", ErrScope, clip(string(s.Device)))
	}
	if len(s.Role) > maxName || !utf8.ValidString(s.Role) {
		return fmt.Errorf("%w: role of %d bytes; use UTF-8 of at most %d", ErrScope, len(s.Role), maxName)
	}
	return nil
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return id != "" && len(id) <= maxName
}

// clip is at most the first 64 bytes of what somebody else wrote.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxName)], "") }

// A payload is what a token carries, as JSON. A member that is added later must
// not be ignored by those who do not know it: it may restrict the token.
type payload struct {
	ID      string `json:"i"`
	For     string `json:"f"`
	Expires int64  `json:"e,omitempty"` // Unix seconds
}

// Mint makes a token: its version, what it says in base64url, and the HMAC-SHA256
// of both under key, which has at least [MinKey] bytes. It has some 120 characters
// and needs no escaping in a URL. The error wraps [ErrKey] or [ErrScope].
func Mint(key []byte, s Scope) (string, error) {
	if len(key) < MinKey {
		return "", fmt.Errorf("%w: %d bytes, at least %d are needed; 'openssl rand -base64 32' prints a good one", ErrKey, len(key), MinKey)
	}
	if err := s.check(); err != nil {
		return "", err
	}
	p := payload{ID: s.ID, For: s.target()}
	if !s.Expires.IsZero() {
		if p.Expires = s.Expires.Unix(); p.Expires <= 0 {
			return "", fmt.Errorf("%w: it expires in %d; give a date to come", ErrScope, s.Expires.Year())
		}
	}
	said, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrScope, err)
	}
	text := version + base64.RawURLEncoding.EncodeToString(said)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(key, text)), nil
}

func sign(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(purpose + text))
	return m.Sum(nil)
}

// Verify reads a token and returns what it says if key signed it and it is valid at
// now. The error wraps [ErrMalformed], [ErrSignature] or [ErrExpired]; with the
// last two the scope tells which token it claims to be, and grants nothing.
func Verify(key []byte, token string, now time.Time) (Scope, error) {
	if token == "" {
		return Scope{}, fmt.Errorf("%w: there is none; end the address with ?token=…", ErrMalformed)
	}
	if len(token) > maxToken {
		return Scope{}, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrMalformed, len(token), maxToken)
	}
	cut := strings.LastIndexByte(token, '.')
	if strings.ContainsAny(token, "\r\n") { // which base64 would pass over
		return Scope{}, fmt.Errorf("%w: it is broken over lines; copy it as one", ErrMalformed)
	}
	if !strings.HasPrefix(token, version) || cut < len(version) {
		return Scope{}, fmt.Errorf("%w: it is not of the form %s….…", ErrMalformed, version)
	}
	strict := base64.RawURLEncoding.Strict()
	signature, err := strict.DecodeString(token[cut+1:])
	if err != nil {
		return Scope{}, fmt.Errorf("%w: its signature is not base64url; copy it whole", ErrMalformed)
	}
	said, err := strict.DecodeString(token[len(version):cut])
	if err != nil {
		return Scope{}, fmt.Errorf("%w: its content is not base64url; copy it whole", ErrMalformed)
	}
	s, err := readPayload(said)
	if err != nil {
		return Scope{}, err
	}
	if len(key) < MinKey || !hmac.Equal(signature, sign(key, token[:cut])) {
		return s, ErrSignature
	}
	if !s.Expires.IsZero() && !now.Before(s.Expires) {
		return s, fmt.Errorf("%w on %s", ErrExpired, s.Expires.UTC().Format(time.DateOnly))
	}
	return s, nil
}

// readPayload reads what a token says, strictly.
func readPayload(said []byte) (Scope, error) {
	d := json.NewDecoder(bytes.NewReader(said))
	d.DisallowUnknownFields()
	var p payload
	if err := d.Decode(&p); err != nil {
		return Scope{}, fmt.Errorf("%w: its content cannot be read by this version", ErrMalformed)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Scope{}, fmt.Errorf("%w: something follows its content", ErrMalformed)
	}
	s := Scope{ID: p.ID}
	if device, ok := strings.CutPrefix(p.For, targetDevice); ok {
		s.Device = protocol.DeviceID(device)
	} else if role, ok := strings.CutPrefix(p.For, targetRole); ok {
		s.Role = role
	} else {
		s.All = p.For == targetAll
	}
	if p.Expires != 0 {
		s.Expires = time.Unix(p.Expires, 0)
	}
	if err := s.check(); err != nil {
		return Scope{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return s, nil
}
