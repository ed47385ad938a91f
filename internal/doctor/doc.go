// Package doctor finds out why a device is connected and nothing is heard.
//
// [Visit] is a device that reports every step: it asks for its configuration,
// connects, says hello, sends sound, and measures what comes back. [Examine]
// looks at the machine a server runs, or will run, on. Both return a [Report]:
// what was looked at, what was found, and what to do about it.
//
// The device here is not that of package device, which behaves as firmware does
// and so falls silent where this one has to say what is wrong.
package doctor
