package api

// Routes are the patterns that do something.
func (a *API) Routes() []string { return a.routes }

// Document is the OpenAPI description.
func Document() []byte { return document }

// Sources is how many addresses that failed are remembered.
func (a *API) Sources() int {
	a.attempts.mu.Lock()
	defer a.attempts.mu.Unlock()
	return len(a.attempts.sources)
}

// MaxSources bounds them.
const MaxSources = maxSources
