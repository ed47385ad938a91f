// Package pipeline holds one device's conversation: it hears Opus packets and
// signals, finds where an utterance ends, runs recogniser, model and voice, and
// plays the answer packet by packet at the pace it is heard.
//
// The providers are interfaces of one method each; see [Transcriber], [Model],
// [Voice] and [Synthesizer]. The call is the lifetime: input that arrives over
// time is a channel, output is an iterator, and cancelling is ending the context
// or leaving the loop.
package pipeline
