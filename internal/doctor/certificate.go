package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"
)

// soon is how long before its end a certificate is worth a word: authorities
// renew theirs a month before, so that two weeks mean that something is stuck.
const soon = 14 * 24 * time.Hour

// certificate checks what devices will see on the TLS port.
func (x *examination) certificate() {
	const check = "certificate"
	c := x.cfg.Config
	host, port, err := net.SplitHostPort(c.OTA.MQTTEndpoint)
	told := err == nil && port == tlsPort
	if c.MQTT.TLSCertificate == "" {
		if told {
			x.report.warn(check, "set [mqtt] tls_certificate and tls_key, unless a proxy serves TLS for us", "[ota] mqtt_endpoint names port %s, where devices use TLS, and there is no certificate", tlsPort)
			return
		}
		x.report.ok(check, "none: MQTT is without TLS")
		return
	}
	pair, err := tls.LoadX509KeyPair(c.MQTT.TLSCertificate, c.MQTT.TLSKey)
	if err != nil {
		x.report.fail(check, "name PEM files of a certificate and of its key, readable by this user", "%s and %s are not a certificate and its key: %v", c.MQTT.TLSCertificate, c.MQTT.TLSKey, err)
		return
	}
	if !told {
		host = ""
	}
	x.judgeCertificate(pair, host)
}

func (x *examination) judgeCertificate(pair tls.Certificate, host string) {
	const check = "certificate"
	const renew = "get a certificate from a public authority for the name in [ota] mqtt_endpoint"
	leaf, now, m := pair.Leaf, x.cfg.Machine.Now, x.cfg.Machine
	chain := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(c)
		}
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: m.Roots, Intermediates: chain, CurrentTime: now})
	var unknown x509.UnknownAuthorityError
	switch {
	case now.After(leaf.NotAfter):
		x.report.fail(check, renew, "it has expired on %s", leaf.NotAfter.Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		x.report.fail(check, "set the clock, or "+renew, "it is not valid before %s", leaf.NotBefore.Format(time.DateOnly))
	case errors.As(err, &unknown):
		x.report.fail(check, renew+", with the whole chain in the file: devices trust no other", "it is not of a public authority")
	case err != nil:
		x.report.fail(check, renew, "it cannot be verified: %v", err)
	case host != "" && leaf.VerifyHostname(host) != nil:
		x.report.fail(check, renew, "it is not for %s, which devices are told, but for %v", host, leaf.DNSNames)
	case leaf.NotAfter.Sub(now) < soon:
		x.report.warn(check, "renew it; Parley reads it again by itself", "it expires on %s", leaf.NotAfter.Format(time.DateOnly))
	default:
		x.report.ok(check, "good for %v until %s", leaf.DNSNames, leaf.NotAfter.Format(time.DateOnly))
	}
}
