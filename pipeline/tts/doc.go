// Package tts holds the synthesizers: programs that write audio to their
// standard output, and services that speak the OpenAI API.
package tts
