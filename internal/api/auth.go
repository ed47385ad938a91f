package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A caller is who a request comes from.
type caller struct {
	name   string // of the token
	scopes scopes
}

// may reports whether c has one of the scopes, which is all that any operation
// asks for.
func (c caller) may(need scopes) bool { return c.scopes&need != 0 }

// dailyName is how the log names users of the gateway's daily token.
const dailyName = "gateway daily token"

// authenticate finds out who r is from. With daily the gateway's daily token is
// accepted as well. A wrong token costs the address one of its attempts; none at
// all is no attempt, since clients ask without to learn what is wanted.
func (a *API) authenticate(r *http.Request, daily bool) (caller, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		a.stats.refused.Add(1)
		p := newProblem(http.StatusUnauthorized, codeNoToken, "no bearer token was sent", "send Authorization: Bearer and a token of the configuration")
		p.challenge = `Bearer realm="parley"`
		return caller{}, p
	}
	from, now := source(r), time.Now()
	if a.attempts.exhausted(from, now) {
		a.stats.limited.Add(1)
		p := newProblem(http.StatusTooManyRequests, codeLimited, "too many wrong tokens came from this address", "wait, and check the token")
		p.retry = int(failureEvery / time.Second)
		return caller{}, p
	}
	if c, ok := a.find(token); ok {
		return c, nil
	}
	if daily && a.isDaily(token, now) {
		return caller{dailyName, everything}, nil
	}
	a.attempts.failed(from, now)
	n := a.stats.refused.Add(1)
	a.complaints.Do(func() {
		a.log.Warn("api token refused", "source", from, "path", clip(r.URL.Path), "refused_total", n)
	})
	p := newProblem(http.StatusUnauthorized, codeBadToken, "the bearer token is not one of the configuration", "check the token; each failure counts")
	p.challenge = `Bearer realm="parley", error="invalid_token"`
	return caller{}, p
}

// find returns whose token it is. How long it takes says nothing about the
// tokens: what is compared are hashes, all of them.
func (a *API) find(token string) (caller, bool) {
	hash := sha256.Sum256([]byte(token))
	var found caller
	ok := false
	for i := range a.keys {
		if subtle.ConstantTimeCompare(hash[:], a.keys[i].hash[:]) == 1 {
			found, ok = a.keys[i].caller, true
		}
	}
	return found, ok
}

// dailyGrace is how long yesterday's daily token is accepted after midnight, for
// clocks that are behind and requests that were on their way.
const dailyGrace = 5 * time.Minute

// isDaily reports whether token is the gateway's of now. The original takes the
// date of its server's time zone; a program in a container may be in UTC.
func (a *API) isDaily(token string, now time.Time) bool {
	ok := 0
	for _, zone := range []*time.Location{a.location, time.UTC} {
		for _, at := range []time.Time{now, now.Add(-dailyGrace)} {
			ok |= subtle.ConstantTimeCompare([]byte(token), []byte(dailyToken(at.In(zone), a.gatewayKey)))
		}
	}
	return ok == 1
}

// dailyToken is the gateway's token of a day.
func dailyToken(day time.Time, key string) string {
	sum := sha256.Sum256([]byte(day.Format(time.DateOnly) + key))
	return hex.EncodeToString(sum[:])
}

// permitted returns an error where c has none of the scopes.
func (a *API) permitted(c caller, need scopes) error {
	if c.may(need) {
		return nil
	}
	a.stats.forbidden.Add(1)
	p := newProblem(http.StatusForbidden, codeScope, fmt.Sprintf("token %q lacks the scope %s", c.name, need), "use a token with that scope, or add it to this one in the configuration")
	p.challenge = fmt.Sprintf("Bearer realm=\"parley\", error=\"insufficient_scope\", scope=%q", strings.ReplaceAll(need.String(), " or ", " "))
	return p
}
