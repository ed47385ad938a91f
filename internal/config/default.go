package config

import "time"

// defaultBaseURL stands in for base_url = "env:NAME" where NAME is not set.
const defaultBaseURL = "https://api.openai.com/v1"

// Default returns the built-in configuration, which needs no file, no account
// and no network. Every call returns a new one.
func Default() *Config {
	r := &report{}
	c := builtIn()
	resolve(c, r, "", func(string) string { return "" })
	return c
}

// builtIn is the default as a file would have it: secrets not read, stages not
// resolved.
func builtIn() *Config {
	return &Config{
		Log: Log{Level: "info", Format: "text"},
		MQTT: MQTT{
			Listen: ":1883", TLSListen: ":8883", ConnectTimeout: 5 * time.Second,
			MaxPacket: 64 << 10, MaxClients: 20_000,
			ConnectRate: 20, ConnectBurst: 40, MessageRate: 50, MessageBurst: 100,
			Keepalive: 120 * time.Second,
		},
		UDP:  UDP{Listen: ":8884"},
		HTTP: HTTP{Listen: ":8003"},
		Session: Session{
			SilenceTimeout: time.Minute, AudioTimeout: 3 * time.Second, Drain: 10 * time.Second,
			HelloRate: 1, HelloBurst: 3,
		},
		Speech: defaultSpeech(),
		Limits: Limits{
			Connect: 5 * time.Second, First: 5 * time.Second, Idle: 15 * time.Second,
			Tool: 10 * time.Second, ToolSlow: 30 * time.Second, ToolRounds: 5, ToolResult: 64 << 10,
			ToolImages: 2 << 20,
			History:    40,
		},
		Record: Record{Dir: "recordings", MaxDuration: 30 * time.Minute, MaxTotal: 1 << 30},
		MCP:    MCP{Files: []string{}, Server: map[string]MCPServer{}, Access: MCPAccess{Revoked: []string{}}},
		Tools:  Tools{Dir: "data", FetchHosts: []string{}},
		Vision: Vision{
			Prompt:   "You are the eyes of a voice assistant. Say in one to three short spoken sentences what is asked about the picture.",
			Question: "What do you see?", Failed: "I could not look at the picture.",
			Timeout: 25 * time.Second, MaxBytes: 8 << 20,
		},
		API:  API{Hosts: []string{}},
		Home: Home{Discovery: "homeassistant"},
		ASR: map[string]ASR{
			"pocketsphinx": {Type: "pocketsphinx", Pocketsphinx: withDefaults(new(Pocketsphinx))},
			"openai":       {Type: "openai", OpenAI: withDefaults(new(ASROpenAI))},
		},
		LLM: map[string]LLM{
			"rules":  {Type: "rules", Rules: withDefaults(new(Rules))},
			"openai": {Type: "openai", OpenAI: withDefaults(new(LLMOpenAI))},
		},
		TTS: map[string]TTS{
			"espeak": {Type: "command", Command: withDefaults(&TTSCommand{
				Command: []string{"espeak-ng", "--stdin", "--stdout", "-v", "en"},
			})},
			"openai": {Type: "openai", OpenAI: withDefaults(new(TTSOpenAI))},
		},
		Role: map[string]Role{DefaultRole: {
			Prompt: defaultPrompt, Language: "en", Engine: "conversation",
			ToolsAllow: []string{"*"}, ToolsDeny: []string{},
		}},
		Device: map[string]Device{},
	}
}

func defaultSpeech() Speech {
	return Speech{
		Lead: 180 * time.Millisecond, StartHold: 150 * time.Millisecond, StopMargin: 120 * time.Millisecond,
		VADStart: 120 * time.Millisecond, PreRoll: 500 * time.Millisecond,
		EndpointMin: 500 * time.Millisecond, EndpointMax: 3 * time.Second,
		BargeIn: 500 * time.Millisecond, Resume: 2 * time.Second, MaxUtterance: 30 * time.Second,
		Filler: "One moment, please.", FillAfter: 2500 * time.Millisecond,
		NotUnderstood: "Sorry, I did not understand that.",
		Apology:       "Sorry, something went wrong. Please try again.",
	}
}

const defaultPrompt = `You are Parley, a friendly voice assistant. Your answers are spoken aloud: keep them to one to three short sentences of plain words, without lists, markup or web addresses. You may begin an answer with one emoji that shows how you feel. Use the tools you are given when they help, and say so plainly when something cannot be done.`

// A variant is the part of a provider table that depends on its type.
type variant interface {
	// setDefaults fills in the fields a table of this type may leave out.
	setDefaults()
}

func withDefaults[V variant](v V) V {
	v.setDefaults()
	return v
}

func (p *Pocketsphinx) setDefaults() {
	p.Program = "pocketsphinx_batch"
	p.Model = "/usr/share/pocketsphinx/model/en-us/en-us"
	p.Dictionary = "/usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict"
	p.Timeout = 10 * time.Second
}

func (c *ASRCommand) setDefaults() {
	c.Format = "wav"
	c.Environment = []string{}
	c.Timeout = 30 * time.Second
}

func (o *ASROpenAI) setDefaults() {
	o.BaseURL = "env:OPENAI_BASE_URL"
	o.APIKey = newSecret("env:OPENAI_API_KEY", "")
	o.Model = "gpt-4o-mini-transcribe"
}

func (o *LLMOpenAI) setDefaults() {
	o.BaseURL = "env:OPENAI_BASE_URL"
	o.APIKey = newSecret("env:OPENAI_API_KEY", "")
	o.Model = "gpt-4o-mini"
	o.Temperature = -1
	o.Extra = map[string]any{}
	o.Schema = "full"
}

func (c *TTSCommand) setDefaults() {
	c.Format = "wav"
	c.Environment = []string{}
	c.Timeout = 15 * time.Second
}

func (o *TTSOpenAI) setDefaults() {
	o.BaseURL = "env:OPENAI_BASE_URL"
	o.APIKey = newSecret("env:OPENAI_API_KEY", "")
	o.Model = "gpt-4o-mini-tts"
	o.Voice = "alloy"
	o.Format = "opus"
	o.Rate = 24_000
}

func (r *Rules) setDefaults() {
	r.Unknown = []string{"Sorry, I did not understand that."}
	r.Rule = defaultRules()
}
