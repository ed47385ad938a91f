package phrase

import "slices"

// An operation is what one instruction of a compiled pattern does.
type operation int

const (
	opWord   operation = iota // take the word key
	opNumber                  // take a number within bounds into slot
	opAny                     // take any word
	opOpen                    // a capture into slot begins here
	opClose                   // and ends here
	opSet                     // slot becomes text, a Choice
	opSplit                   // go on at x, and if that fails at y
	opJump                    // go on at x
	opDone                    // the utterance must end here
)

type instruction struct {
	op   operation
	key  string
	text string
	slot int
	x, y int

	bounds bounds // of opNumber
}

// compile turns a pattern into a program of a backtracking machine: words of
// courtesy, the pattern, words of courtesy. Trying the pattern first keeps
// "thank you" as a pattern of its own possible.
func compile(root node) []instruction {
	c := &compiler{}
	c.courtesies(leading())
	c.node(root)
	c.courtesies(trailing())
	c.emit(instruction{op: opDone})
	return c.program
}

type compiler struct{ program []instruction }

func (c *compiler) emit(i instruction) int {
	c.program = append(c.program, i)
	return len(c.program) - 1
}

// courtesies compiles any number of the phrases, preferring none.
func (c *compiler) courtesies(phrases []string) {
	var list choice
	for _, text := range phrases {
		list = append(list, literal(text))
	}
	split := c.emit(instruction{op: opSplit})
	c.program[split].y = len(c.program)
	c.node(list)
	c.emit(instruction{op: opJump, x: split})
	c.program[split].x = len(c.program)
}

func (c *compiler) node(n node) {
	switch n := n.(type) {
	case word:
		c.emit(instruction{op: opWord, key: n.key})
	case sequence:
		for _, one := range n {
			c.node(one)
		}
	case choice:
		c.choice(len(n), func(i int) { c.node(n[i]) })
	case optional:
		split := c.emit(instruction{op: opSplit})
		c.program[split].x = len(c.program)
		c.node(n.body)
		c.program[split].y = len(c.program)
	case capture:
		c.capture(n)
	}
}

// choice compiles n alternatives, earlier ones preferred.
func (c *compiler) choice(n int, one func(i int)) {
	var ends []int
	for i := range n {
		split := -1
		if i < n-1 {
			split = c.emit(instruction{op: opSplit})
			c.program[split].x = len(c.program)
		}
		one(i)
		if split >= 0 {
			ends = append(ends, c.emit(instruction{op: opJump}))
			c.program[split].y = len(c.program)
		}
	}
	for _, i := range ends {
		c.program[i].x = len(c.program)
	}
}

func (c *compiler) capture(n capture) {
	switch n.kind {
	case Number:
		c.emit(instruction{op: opNumber, slot: n.slot, bounds: n.bounds})
	case Choice:
		c.choice(len(n.options), func(i int) {
			c.node(n.options[i].body)
			c.emit(instruction{op: opSet, slot: n.slot, text: n.options[i].text})
		})
	case Text:
		c.emit(instruction{op: opOpen, slot: n.slot})
		again := c.emit(instruction{op: opAny})
		split := c.emit(instruction{op: opSplit, y: again})
		c.program[split].x = len(c.program)
		c.emit(instruction{op: opClose, slot: n.slot})
	}
}

// leading are courtesies that may stand before a command.
func leading() []string {
	return []string{
		"please", "hey", "okay", "ok", "so", "well", "now", "just",
		"can you", "could you", "would you", "will you", "i want you to", "i would like you to",
		"请", "请你", "麻烦", "麻烦你", "帮我", "你能", "能不能",
	}
}

// trailing are courtesies that may stand after a command.
func trailing() []string {
	return []string{"please", "now", "right now", "for me", "thanks", "thank you", "吧", "谢谢", "好吗"}
}

// isHesitation reports whether a word is a noise of thinking, which is passed
// over wherever it stands.
func isHesitation(key string) bool {
	switch key {
	case "um", "umm", "uh", "uhm", "er", "erm", "hm", "hmm", "ah", "呃", "嗯":
		return true
	}
	return false
}

// Match reports whether text, as a whole, is an utterance of the pattern, and
// what its captures took. A capture in a part that was left out is absent; of
// two captures of one name the later one counts. Where words can be taken in
// several ways, earlier alternatives, longer numbers and shorter free text win.
// The time it takes is bounded by the length of the pattern times the length of
// text.
func (p *Pattern) Match(text string) (map[string]Value, bool) {
	tokens := tokenise(text, MaxUtterance+1)
	if len(tokens) == 0 || len(tokens) > MaxUtterance {
		return nil, false
	}
	m := &machine{
		program: p.program,
		text:    text,
		tokens:  tokens,
		visited: make([]bool, len(p.program)*(len(tokens)+1)),
		slots:   make([]slot, len(p.captures)),
	}
	if !m.run(0, 0) {
		return nil, false
	}
	values := make(map[string]Value, len(p.captures))
	for i, c := range p.captures {
		if m.slots[i].taken {
			values[c.Name] = m.slots[i].value
		}
	}
	return values, true
}

// A machine runs a program over an utterance. A state, an instruction at a
// token, that failed once fails always, because captures do not take part in
// matching; so each is visited once.
type machine struct {
	program []instruction
	text    string
	tokens  []token
	visited []bool
	slots   []slot
}

type slot struct {
	value Value
	start int // token where an open capture of text began
	taken bool
}

func (m *machine) run(pc, at int) bool {
	for {
		state := pc*(len(m.tokens)+1) + at
		if m.visited[state] {
			return false
		}
		m.visited[state] = true
		i := m.program[pc]
		switch i.op {
		case opJump:
			pc = i.x
			continue
		case opSplit:
			if m.run(i.x, at) {
				return true
			}
			pc = i.y
			continue
		case opOpen, opClose, opSet:
			return m.capture(i, pc, at)
		}
		if m.consume(i, pc, at) {
			return true
		}
		if at == len(m.tokens) || !isHesitation(m.tokens[at].key) {
			return false
		}
		at++
	}
}

// consume runs the instructions that look at a word.
func (m *machine) consume(i instruction, pc, at int) bool {
	if i.op == opDone {
		return at == len(m.tokens)
	}
	if at == len(m.tokens) {
		return false
	}
	switch i.op {
	case opWord:
		return m.tokens[at].key == i.key && m.run(pc+1, at+1)
	case opAny:
		return m.run(pc+1, at+1)
	case opNumber:
		saved := m.slots[i.slot]
		for _, r := range readings(m.tokens[at:]) {
			if !i.bounds.hold(r.value) {
				continue
			}
			m.slots[i.slot] = slot{taken: true, value: Value{
				Text: m.span(at, at+r.length), Number: r.value, Kind: Number,
			}}
			if m.run(pc+1, at+r.length) {
				return true
			}
		}
		m.slots[i.slot] = saved
	}
	return false
}

// capture runs the instructions that only keep book.
func (m *machine) capture(i instruction, pc, at int) bool {
	saved := m.slots[i.slot]
	switch i.op {
	case opOpen:
		m.slots[i.slot].start = at
	case opClose:
		m.slots[i.slot].taken = true
		m.slots[i.slot].value = Value{Text: m.span(saved.start, at), Kind: Text}
	case opSet:
		m.slots[i.slot] = slot{taken: true, value: Value{Text: i.text, Kind: Choice}}
	}
	if m.run(pc+1, at) {
		return true
	}
	m.slots[i.slot] = saved
	return false
}

// span is the user's own words from one token up to another.
func (m *machine) span(from, to int) string {
	return m.text[m.tokens[from].start:m.tokens[to-1].end]
}

// Words lists the words a user of the pattern may say, in the order of the
// alphabet, without numbers and free text.
func (p *Pattern) Words() []string {
	var list []string
	walk(p.root, func(n node) {
		if w, ok := n.(word); ok {
			list = append(list, w.text)
		}
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// walk visits all words and captures of n.
func walk(n node, visit func(node)) {
	switch n := n.(type) {
	case word:
		visit(n)
	case sequence:
		for _, one := range n {
			walk(one, visit)
		}
	case choice:
		for _, one := range n {
			walk(one, visit)
		}
	case optional:
		walk(n.body, visit)
	case capture:
		visit(n)
		for _, o := range n.options {
			walk(o.body, visit)
		}
	}
}
