package home

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"parley/mcp"
)

// A view is what conversations see of the house: the entities that are online,
// by name, and the tools for them. It never changes; another replaces it.
type view struct {
	tools  []mcp.Tool
	things []*thing
	rooms  map[string][]*thing // the lights of a room by the room's words
}

// A thing is an entity with the name people call it by.
type thing struct {
	*entity
	called string
	words  []string // of the name
	// aliases are other sets of words that mean it, unless they mean another as
	// well.
	aliases [][]string
}

// rebuild makes a new view of what is online now.
func (h *Home) rebuild() {
	h.mu.Lock()
	var online []*entity
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(h.entities)) {
		e := h.entities[key]
		id := string(e.kind) + "\x00" + e.unique
		if !e.presence.online() || e.unique != "" && seen[id] {
			continue // the same thing may be announced in two ways
		}
		seen[id] = true
		online = append(online, e)
	}
	h.counters.Entities.Store(int64(len(h.entities)))
	h.counters.Available.Store(int64(len(online)))
	h.mu.Unlock()
	v := &view{things: nameThings(online), rooms: map[string][]*thing{}}
	for _, t := range v.things {
		if t.kind == kindLight && t.area != "" {
			room := strings.Join(wordsOf(t.area), " ")
			v.rooms[room] = append(v.rooms[room], t)
		}
	}
	v.tools = append(v.ownTools(), customTools(h.customs)...)
	h.view.Store(v)
}

// nameThings gives every entity a name of its own. Where two have one, the room
// is put before it, and where that does not help, a number behind it.
func nameThings(entities []*entity) []*thing {
	count := map[string]int{}
	for _, e := range entities {
		count[keyOf(e.name)]++
	}
	taken := map[string]bool{}
	things := make([]*thing, 0, len(entities))
	for _, e := range entities {
		name := e.name
		if count[keyOf(name)] > 1 && e.area != "" && !hasWordPrefix(name, e.area) {
			name = speakable(e.area + " " + name)
		}
		base := name
		for n := 2; taken[keyOf(name)]; n++ {
			name = base + " " + plainNumber(float64(n))
		}
		taken[keyOf(name)] = true
		t := &thing{entity: e, called: spoken(name), words: wordsOf(name)}
		t.aliases = t.otherNames()
		things = append(things, t)
	}
	slices.SortFunc(things, func(a, b *thing) int { return cmp.Compare(a.called, b.called) })
	return things
}

// spoken writes a name as in the middle of a sentence: "Living Room" becomes
// "living room", and "TV" stays.
func spoken(name string) string {
	fields := strings.Fields(name)
	for i, w := range fields {
		r := []rune(w)
		if !slices.ContainsFunc(r[1:], func(r rune) bool { return unicode.IsUpper(r) || unicode.IsDigit(r) }) {
			fields[i] = strings.ToLower(w)
		}
	}
	return strings.Join(fields, " ")
}

func keyOf(name string) string { return strings.Join(wordsOf(name), " ") }

// wordsOf cuts a name into what names are compared by: lower case, without
// punctuation, articles and the s of a plural.
func wordsOf(name string) []string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '’'
	})
	out := words[:0]
	for _, w := range words {
		w = strings.NewReplacer("'", "", "’", "").Replace(w)
		switch w {
		case "the", "a", "an", "my", "our", "":
			continue
		}
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			w = w[:len(w)-1]
		}
		out = append(out, w)
	}
	return out
}

// nouns are words people add to the name of a thing of a kind.
func nouns(k kind) []string {
	switch k {
	case kindLight:
		return []string{"light", "lamp"}
	case kindSwitch:
		return []string{"switch", "plug", "socket", "outlet"}
	case kindCover:
		return []string{"cover", "blind", "shutter", "curtain", "shade"}
	case kindFan:
		return []string{"fan"}
	case kindClimate:
		return []string{"heating", "thermostat", "heater", "temperature"}
	case kindLock:
		return []string{"lock", "door"}
	case kindScene:
		return []string{"scene"}
	case kindAlarm:
		return []string{"alarm"}
	}
	return nil
}

// otherNames are the entity's name without its device's, with its room's, and
// with a noun that says what it is.
func (t *thing) otherNames() [][]string {
	var out [][]string
	add := func(words ...string) {
		if len(words) > 0 && !slices.Equal(words, t.words) {
			out = append(out, words)
		}
	}
	own, area := wordsOf(t.own), wordsOf(t.area)
	add(own...)
	add(append(slices.Clone(area), own...)...)
	kinds := nouns(t.kind)
	bare := t.words // without a noun of its kind: a lamp may be called a light
	if n := len(bare); n > 1 && slices.Contains(kinds, bare[n-1]) {
		bare = bare[:n-1]
	}
	for _, noun := range kinds {
		for _, before := range [][]string{bare, area, wordsOf(t.device)} {
			if len(before) > 0 && !slices.Contains(before, noun) {
				add(append(slices.Clone(before), noun)...)
			}
		}
	}
	if class := wordsOf(strings.ReplaceAll(t.class, "_", " ")); len(class) > 0 {
		if len(area) > 0 {
			add(append(slices.Clone(area), class...)...)
		}
		add(append(slices.Clone(t.words), class...)...)
	}
	return out
}

// find returns what a name means among the things that fit: one of them, or with
// rooms the lights of a room. Names are tried from the exact to the vague: the
// name itself, another name, a room, some words of the name. It returns nothing
// where the name means nothing, and several of a room; unsure lists those a vague
// name could mean.
func (v *view) find(name string, fits func(*thing) bool, rooms bool) (found, unsure []*thing) {
	words := wordsOf(name)
	if len(words) == 0 {
		return nil, nil
	}
	var candidates []*thing
	for _, t := range v.things {
		if fits(t) {
			candidates = append(candidates, t)
		}
	}
	var alias, part []*thing
	for _, t := range candidates {
		switch {
		case sameWords(t.words, words):
			return []*thing{t}, nil
		case slices.ContainsFunc(t.aliases, func(a []string) bool { return sameWords(a, words) }):
			alias = append(alias, t)
		case subset(words, t.words):
			part = append(part, t)
		}
	}
	if len(alias) == 1 {
		return alias, nil
	}
	if rooms {
		if lights := v.lightsOf(words); len(lights) > 0 {
			return lights, nil
		}
	}
	if len(alias) > 0 {
		return nil, alias
	}
	if len(part) == 1 {
		return part, nil
	}
	return nil, part
}

// lightsOf are the lights that "living room" or "living room lights" means, and
// all of them for "all lights".
func (v *view) lightsOf(words []string) []*thing {
	room := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return slices.Contains([]string{"all", "every", "in", "of", "light", "lamp"}, w)
	})
	if len(room) == 0 && len(words) > 1 {
		var all []*thing
		for _, t := range v.things {
			if t.kind == kindLight {
				all = append(all, t)
			}
		}
		return all
	}
	return v.rooms[strings.Join(room, " ")]
}

// sameWords compares names without the spaces between words, which people and
// recognisers put where they like.
func sameWords(a, b []string) bool { return strings.Join(a, "") == strings.Join(b, "") }

// subset reports whether all words are among those of a name.
func subset(words, of []string) bool {
	for _, w := range words {
		if !slices.Contains(of, w) {
			return false
		}
	}
	return true
}

// nearest lists the names that are most like one that means nothing, at most n.
func nearest(name string, things []*thing, n int) []string {
	words := wordsOf(name)
	type scored struct {
		name  string
		score int
	}
	var list []scored
	for _, t := range things {
		s := scored{name: t.called}
		for _, w := range words {
			best := 0
			for _, x := range t.words {
				best = max(best, likeness(w, x))
			}
			s.score += best
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	var out []string
	for _, s := range list[:min(n, len(list))] {
		out = append(out, s.name)
	}
	return out
}

// likeness is how much two words have in common, 0 to 10: how far they begin
// alike, of the longer one.
func likeness(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return 10 * n / max(len(a), len(b))
}
