package config

import (
	_ "embed" // the default rules
	"fmt"

	"github.com/BurntSushi/toml"
)

//go:embed rules.toml
var rulesFile string

// defaultRules are the requests the offline default understands.
func defaultRules() []Rule {
	var doc struct {
		LLM struct {
			Rules struct {
				Rule []Rule `toml:"rule"`
			} `toml:"rules"`
		} `toml:"llm"`
	}
	if _, err := toml.Decode(rulesFile, &doc); err != nil {
		panic(fmt.Sprintf("config: rules.toml: %v", err)) // part of the program, and tested
	}
	return doc.LLM.Rules.Rule
}
