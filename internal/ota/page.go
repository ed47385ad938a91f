package ota

import (
	"bytes"
	_ "embed"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// pageSource is the page for people: one file that loads nothing.
//
//go:embed page.html
var pageSource string

// pageData is what the page shows.
type pageData struct {
	URLs     []string // to type into a device
	Broker   string
	Audio    string
	Signed   bool
	Public   bool
	Inside   bool // the reader is on a private network and may see the state
	Status   Status
	Enrolled uint64
	Local    bool // the reader used an address that only this machine has
}

func (h *Handler) showPage(w http.ResponseWriter, r *http.Request) {
	host := usableHost(r)
	data := pageData{
		Signed: len(h.cfg.Key) > 0, Public: h.cfg.Public,
		Inside: sourceOf(r).private, Status: h.status(), Enrolled: h.enrolled.Load(),
		Local: isLoopback(host),
	}
	if data.Local {
		for _, address := range lanAddresses() {
			data.URLs = append(data.URLs, deviceURL(r, address))
			host = address
		}
	} else {
		data.URLs = []string{deviceURL(r, host)}
	}
	if data.Broker = h.cfg.Endpoint; data.Broker == "" {
		data.Broker = net.JoinHostPort(host, strconv.Itoa(h.cfg.MQTTPort))
	}
	data.Audio = strconv.Itoa(h.cfg.UDPPort)
	var page bytes.Buffer
	if err := h.page.Execute(&page, data); err != nil {
		h.log.Error("cannot make the page", "error", err)
		writeError(w, http.StatusInternalServerError, "the page could not be made")
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(page.Len()))
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodHead {
		_, _ = w.Write(page.Bytes()) // who has gone does not read the error either
	}
}

// deviceURL is the address to type into a device that reaches this server at host
// the way r did.
func deviceURL(r *http.Request, host string) string {
	scheme := "http://"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https://"
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		host = net.JoinHostPort(host, port)
	}
	return scheme + host + Path
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || host == "" || err == nil && address.IsLoopback()
}

// lanAddresses lists the IPv4 addresses at which devices may find this machine.
func lanAddresses() []string {
	var list []string
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the page says what to look for instead
	}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if ip := prefix.Addr(); err == nil && ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			list = append(list, ip.String())
		}
	}
	return list
}
