// Package llm holds the models: services that speak the OpenAI API, and one that
// answers from rules, without any.
package llm
