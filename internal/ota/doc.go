// Package ota answers the HTTP requests of devices that start, which ask there
// where their server is, what time it is, and whether there is new firmware; and
// it shows people who open the same address what they need to know.
//
//	POST /xiaozhi/ota/          a device asks for its configuration
//	GET  /xiaozhi/ota/          a page for people
//	POST /xiaozhi/ota/activate  always 200: devices are not activated one by one
//	GET  /healthz               200 while the process runs
//	GET  /readyz                200 when every check passes, else 503
//
// A device asks once, when it boots, and then lives with the answer for months.
// So the answer never expires and is written strictly: a wrong member in it makes
// a device restart for ever, because it will fetch the same answer again.
//
// # Who is answered
//
// The answer holds signed MQTT credentials for whatever MAC address the request
// names, so whoever can ask can pose as a device. Only requests from private
// addresses are answered: loopback, RFC 1918, link-local, unique local (RFC 4193)
// and shared (RFC 6598) ones. [Config.Public] lifts that. Behind a proxy the
// request's own address is the proxy's, which is private, so every address in
// X-Forwarded-For must be private as well; a forged header can only make a
// request less trusted. A proxy that hides the header, or a router that rewrites
// source addresses, must itself keep strangers out.
package ota
