package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writeCertificate writes a self-made certificate for the name and its key.
func writeCertificate(t *testing.T, dir, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}, &x509.Certificate{SerialNumber: big.NewInt(serial)}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestTLS(t *testing.T) {
	cert, key := writeCertificate(t, t.TempDir(), "voice.example.org", 1)
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", CertificateFile: cert, KeyFile: key}, r)
	c, err := tls.Dial("tcp", b.TLSAddr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	p := join(t, c, hello{clientID: clientID(macA)})
	l := r.next(t, "connect").link
	if d := l.Device(); !d.TLS || d.Local.String() != b.TLSAddr().String() {
		t.Errorf("device %+v", d)
	}
	if err := l.Send([]byte("over TLS")); err != nil {
		t.Fatal(err)
	}
	if m := p.next(0x30); !strings.HasSuffix(string(m.body), "over TLS") {
		t.Errorf("PUBLISH %q", m.body)
	}
	// The plain listener serves at the same time.
	join(t, dialTCP(t, b), hello{clientID: clientID(macB)})
	if d := r.next(t, "connect").link.Device(); d.TLS {
		t.Errorf("device %+v", d)
	}
	// A plain client on the TLS port ends nothing but itself.
	plain, err := net.Dial("tcp", b.TLSAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	q := newPeer(t, plain)
	q.write(hello{clientID: clientID(macB)}.packet()...)
	for range q.in { // a TLS alert, which is no MQTT, or nothing
	}
	l.Close("done")
	p.ended()
}

// The certificate is read again after its files change, at most once a second,
// and a broken file leaves the old one in use.
func TestCertificateReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert, key := writeCertificate(t, dir, "old.example.org", 1)
		log := new(logBuffer)
		c, err := newCertificates(cert, key, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			t.Helper()
			pair, err := c.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(pair.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return leaf.SerialNumber.Int64()
		}
		// Files carry real time, which may not have advanced between two writes.
		written := time.Now()
		touch := func() {
			t.Helper()
			written = written.Add(time.Second)
			for _, f := range []string{cert, key} {
				if err := os.Chtimes(f, written, written); err != nil {
					t.Fatal(err)
				}
			}
		}
		expect := func(want int64, why string) {
			t.Helper()
			if got := serial(); got != want {
				t.Errorf("%s: certificate %d, want %d", why, got, want)
			}
		}
		expect(1, "at first")
		writeCertificate(t, dir, "new.example.org", 2)
		touch()
		expect(1, "within the second")
		time.Sleep(certificateCheck)
		expect(2, "after a second")
		if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(certificateCheck)
			expect(2, "broken file")
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateCheck)
		expect(2, "no file")
		writeCertificate(t, dir, "newer.example.org", 3)
		touch()
		time.Sleep(certificateCheck)
		expect(3, "repaired")
		if s := log.String(); strings.Count(s, "not reloaded") != 1 || strings.Count(s, "certificate reloaded") != 2 {
			t.Errorf("log %q, want one failure and two reloads", s)
		}
	})
}
