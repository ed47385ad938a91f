// Package asr holds the recognisers: programs that read an utterance and print
// what was said, services that speak the OpenAI API, and an offline recogniser
// of commands that needs neither.
package asr
