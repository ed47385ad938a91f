// Package resilient makes one provider out of several that may fail: each is
// given limited time, the next in order takes over from one that fails, and one
// that keeps failing is left alone for a while.
//
// A chain never changes provider once something of the current one has been
// used: an answer is not begun by one model and finished by another. What a user
// ends, by interrupting or hanging up, is nobody's failure.
//
// Time limits end a provider's context; they do not abandon it. Since nothing a
// provider starts may outlive its iterator, a chain waits for an iterator that
// does not heed its context, and so does its caller.
package resilient
