// Package openaitest is a small service that speaks the OpenAI API on the wire:
// transcriptions, streamed chat completions with tool calls, streamed speech and
// the list of models. What it hears, answers and says is up to the caller; that
// it answers as the real services do, in small pieces and with their failures,
// is its own business. It refuses what they would refuse.
//
// Tests, the demonstration and self-checks use it where no account and no
// network is at hand.
package openaitest
