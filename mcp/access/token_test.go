package access_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"parley/mcp/access"
)

func at(s string) time.Time {
	t, err := time.Parse(time.DateTime, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestTokens(t *testing.T) {
	now := at("2026-03-01 12:00:00")
	for name, s := range map[string]access.Scope{
		"device":  {ID: "kitchen-pc", Device: deviceA},
		"role":    {ID: "a_B-9", Role: "Köchin: 厨师"},
		"all":     {ID: strings.Repeat("x", 64), All: true},
		"expires": {ID: "x", Role: strings.Repeat("x", 64), Expires: time.Unix(now.Unix()+1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			token := mint(t, s)
			if !regexp.MustCompile(`^pa1\.[\w-]+\.[\w-]{43}$`).MatchString(token) || len(token) > 300 {
				t.Errorf("token %q", token)
			}
			if got, err := access.Verify(key(), token, now); err != nil || !reflect.DeepEqual(got, s) {
				t.Errorf("%+v, %v; want %+v", got, err, s)
			}
			for i := range token { // one character wrong
				wrong := token[:i] + string(token[i]^1) + token[i+1:]
				if got, err := access.Verify(key(), wrong, now); err == nil {
					t.Errorf("%q was taken: %+v", wrong, got)
				}
			}
			other := []byte("another key, as long as it must be")
			if _, err := access.Verify(other, token, now); !errors.Is(err, access.ErrSignature) {
				t.Errorf("with another key: %v", err)
			}
		})
	}
}

// TestForm takes a token that was made without Mint: tokens outlive versions.
func TestForm(t *testing.T) {
	want := access.Scope{ID: "pc", Device: deviceA, Expires: time.Unix(1<<33, 0)}
	got, err := access.Verify(key(), forge(`{"i":"pc","f":"device:a0:85:e3:f4:49:34","e":8589934592}`), time.Unix(0, 0))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTokensExpire(t *testing.T) {
	s := access.Scope{ID: "x", All: true, Expires: at("2026-03-01 12:00:00")}
	token := mint(t, s)
	if _, err := access.Verify(key(), token, s.Expires.Add(-time.Second)); err != nil {
		t.Errorf("a second before: %v", err)
	}
	got, err := access.Verify(key(), token, s.Expires)
	if !errors.Is(err, access.ErrExpired) || !strings.Contains(err.Error(), "2026-03-01") || got.ID != "x" {
		t.Errorf("at the end: %+v, %v", got, err)
	}
}

func TestMintRefuses(t *testing.T) {
	good := access.Scope{ID: "x", Device: deviceA}
	if _, err := access.Mint(key()[:15], good); !errors.Is(err, access.ErrKey) {
		t.Errorf("a short key: %v", err)
	}
	for name, s := range map[string]access.Scope{
		"nothing":      {},
		"no id":        {Device: deviceA},
		"bad id":       {ID: "a b", Device: deviceA},
		"long id":      {ID: strings.Repeat("x", 65), Device: deviceA},
		"for nobody":   {ID: "x"},
		"for two":      {ID: "x", Device: deviceA, All: true},
		"no device":    {ID: "x", Device: "kitchen"},
		"other form":   {ID: "x", Device: "A0-85-E3-F4-49-34"},
		"long role":    {ID: "x", Role: strings.Repeat("x", 65)},
		"no UTF-8":     {ID: "x", Role: "\xff"},
		"before epoch": {ID: "x", All: true, Expires: time.Unix(-1, 0)},
	} {
		if token, err := access.Mint(key(), s); !errors.Is(err, access.ErrScope) {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
	for range 100 {
		if _, err := access.Mint(key(), access.Scope{ID: access.NewID(), All: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	for name, token := range map[string]string{
		"nothing":         "",
		"a word":          "secret",
		"a JWT":           "eyJhbGciOiJFUzI1NiJ9.eyJ1c2VySWQiOjF9.c2ln",
		"another version": "pa2" + mint(t, access.Scope{ID: "x", All: true})[3:],
		"no signature":    "pa1.e30",
		"too long":        "pa1." + strings.Repeat("A", 600) + ".AA",
		"a line feed":     mint(t, access.Scope{ID: "x", All: true}) + "\n",
		"padding":         mint(t, access.Scope{ID: "x", All: true}) + "=",
		"unknown member":  forge(`{"i":"x","f":"*","only":"mondays"}`),
		"two objects":     forge(`{"i":"x","f":"*"}{}`),
		"for nobody":      forge(`{"i":"x"}`),
		"for somebody":    forge(`{"i":"x","f":"somebody"}`),
		"no device":       forge(`{"i":"x","f":"device:"}`),
	} {
		if got, err := access.Verify(key(), token, time.Now()); !errors.Is(err, access.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// forge signs any content with the right key, independently of Mint.
func forge(content string) string {
	text := "pa1." + base64.RawURLEncoding.EncodeToString([]byte(content))
	m := hmac.New(sha256.New, key())
	m.Write([]byte("parley access token\x00" + text))
	return text + "." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func FuzzVerify(f *testing.F) {
	good, err := access.Mint(key(), access.Scope{ID: "x", Device: deviceA, Expires: time.Unix(1<<40, 0)})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		good, good[:len(good)-1], "pa1..", "pa1.e30.", `{"i":"x","f":"*"}`, `{"i":"x","f":"role:cook","e":-1}`,
		`{"i":"","f":"*"}`, `{"i":"x","f":"device:a0:85:e3:f4:49:34","e":9223372036854775807}`, `{"I":"x","F":"*"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// What nobody signed is never taken.
		if s, err := access.Verify(key(), text, time.Unix(0, 0)); err == nil && text != good {
			t.Errorf("%q was taken: %+v", text, s)
		}
		// What is signed and taken can be minted, and means the same.
		s, err := access.Verify(key(), forge(text), time.Unix(0, 0))
		if err != nil {
			return
		}
		token, err := access.Mint(key(), s)
		if err != nil {
			t.Fatalf("%+v is taken and cannot be minted: %v", s, err)
		}
		if again, err := access.Verify(key(), token, time.Unix(0, 0)); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}
