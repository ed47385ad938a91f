package config

import "time"

// An ASR table is one recogniser: exactly the field its Type names is set.
type ASR struct {
	Type         string        `toml:"type"`
	Pocketsphinx *Pocketsphinx `variant:"pocketsphinx"`
	Command      *ASRCommand   `variant:"command"`
	OpenAI       *ASROpenAI    `variant:"openai"`
}

// An LLM table is one model: exactly the field its Type names is set.
type LLM struct {
	Type   string     `toml:"type"`
	Rules  *Rules     `variant:"rules"`
	OpenAI *LLMOpenAI `variant:"openai"`
}

// A TTS table is one synthesizer: exactly the field its Type names is set.
type TTS struct {
	Type    string      `toml:"type"`
	Command *TTSCommand `variant:"command"`
	OpenAI  *TTSOpenAI  `variant:"openai"`
}

// Pocketsphinx recognises what the rules of the same role can answer, offline,
// with the programs of Debian's package of that name.
type Pocketsphinx struct {
	Program    string            `toml:"program"`    // pocketsphinx_batch, looked up in PATH unless it has a slash
	Model      string            `toml:"model"`      // directory of the acoustic model
	Dictionary string            `toml:"dictionary"` // file of pronunciations
	Pronounce  map[string]string `toml:"pronounce"`  // of words the dictionary lacks, in its phones
	Timeout    time.Duration     `toml:"timeout"`    // 100ms to 5m, one utterance
	Parallel   int               `toml:"parallel"`   // utterances at once, 0 to 1,024; 0: one a core
}

// ASRCommand is any program that reads audio and prints text.
type ASRCommand struct {
	Command     []string      `toml:"command"`     // program and arguments, no shell; "{file}" stands for a file of the audio, without it it goes to standard input
	Format      string        `toml:"format"`      // wav or raw
	Environment []string      `toml:"environment"` // "NAME=value", beside PATH, HOME and the like
	Timeout     time.Duration `toml:"timeout"`
	Parallel    int           `toml:"parallel"`
}

// ASROpenAI is a service with OpenAI's audio/transcriptions.
type ASROpenAI struct {
	BaseURL  string `toml:"base_url"` // http(s) URL without a slash at its end
	APIKey   Secret `toml:"api_key"`  // unset: none is sent
	Model    string `toml:"model"`
	Language string `toml:"language"` // ISO 639-1; "": the role's
	Prompt   string `toml:"prompt"`   // words the recogniser should expect
}

// Rules answer from patterns, without any model.
type Rules struct {
	Unknown []string `toml:"unknown"` // what to say when no rule matches, in turn
	Rule    []Rule   `toml:"rule"`    // the first that matches answers
}

// A Rule answers one kind of request.
type Rule struct {
	Match     []string       `toml:"match"`     // patterns of whole utterances
	Call      string         `toml:"call"`      // a tool, by the device's name for it
	Arguments map[string]any `toml:"arguments"` // of the call
	Then      []Step         `toml:"then"`      // further calls, each after the result of the one before
	Answer    string         `toml:"answer"`    // "{name}" stands for what a pattern captured, "{result}" for the tool's
	Answers   []string       `toml:"answers"`   // more of them, given in turn
	Failed    string         `toml:"failed"`    // said instead when the call fails
	Emotion   string         `toml:"emotion"`   // a face of the device, such as "happy"
}

// A Step is one tool call of a rule.
type Step struct {
	Call      string         `toml:"call"`
	Arguments map[string]any `toml:"arguments"`
}

// LLMOpenAI is a service with OpenAI's chat/completions.
type LLMOpenAI struct {
	BaseURL     string  `toml:"base_url"`
	APIKey      Secret  `toml:"api_key"`
	Model       string  `toml:"model"`
	Temperature float64 `toml:"temperature"` // 0 to 2; -1: not sent
	MaxTokens   int     `toml:"max_tokens"`  // 0: not sent
	Vision      bool    `toml:"vision"`      // the model takes pictures
	Schema      string  `toml:"schema"`      // of tools: full, or strict for services that know little of JSON schema
	// Extra holds further members of the request, as the service documents them.
	Extra map[string]any `toml:"extra"`
}

// TTSCommand is any program that reads text and writes audio.
type TTSCommand struct {
	// Command is the program and its arguments; there is no shell. "{text}" stands
	// for the sentence; without it the sentence goes to standard input.
	Command     []string      `toml:"command"`
	Format      string        `toml:"format"`      // wav or raw
	Rate        int           `toml:"rate"`        // Hz of raw audio; 0 for WAV, which says so itself
	Environment []string      `toml:"environment"` // as of an ASRCommand
	Timeout     time.Duration `toml:"timeout"`
	Parallel    int           `toml:"parallel"`
}

// TTSOpenAI is a service with OpenAI's audio/speech.
type TTSOpenAI struct {
	BaseURL      string  `toml:"base_url"`
	APIKey       Secret  `toml:"api_key"`
	Model        string  `toml:"model"`
	Voice        string  `toml:"voice"`
	Format       string  `toml:"format"`       // opus or pcm
	Rate         int     `toml:"rate"`         // Hz of pcm, 8,000 to 48,000
	Speed        float64 `toml:"speed"`        // 0.25 to 4; 0: not sent
	Instructions string  `toml:"instructions"` // how to speak; "": not sent
}
