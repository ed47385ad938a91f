package home

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds on templates, which anybody sends who may announce a lamp. The longest
// of Zigbee2MQTT has some 300 bytes and 40 nodes.
const (
	// maxTemplate bounds a template's source in bytes.
	maxTemplate = 4 << 10
	// maxTemplateNodes and maxTemplateDepth bound what it is parsed into.
	// There are no loops, so they bound the time of evaluation as well.
	maxTemplateNodes = 512
	maxTemplateDepth = 48
	// maxTemplateWork bounds, in bytes, all texts and lists that one evaluation
	// makes.
	maxTemplateWork = 1 << 20
	// maxTemplateText bounds one text of them.
	maxTemplateText = 64 << 10
)

// errTemplateWork ends an evaluation that would make too much.
var errTemplateWork = errors.New("the template makes too much text")

// A template is the subset of Jinja that discovery payloads use: values,
// members, indices and slices, arithmetic, comparisons, conditions, set, and the
// filters, tests and methods of templatefunctions.go. It is immutable and safe
// for concurrent use.
type template struct {
	source string
	body   []statement
}

// A statement is one piece of a template: text, a value to print, an assignment
// or a condition.
type statement struct {
	text     string
	value    expression
	set      string
	branches []branch
}

// A branch is one arm of an if; the last may be without a condition.
type branch struct {
	condition expression
	body      []statement
}

// parseTemplate reads a template. An error says what is beyond the subset.
func parseTemplate(source string) (*template, error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(source), maxTemplate)
	}
	tokens, err := lexTemplate(source)
	if err != nil {
		return nil, err
	}
	p := &templateParser{tokens: tokens}
	body, _, err := p.parseBody()
	if err != nil {
		return nil, err
	}
	return &template{source: source, body: body}, nil
}

// render evaluates the template with the variables that lookup knows and returns
// its text without space around it, as Home Assistant does. An error means that
// the message it was given has not what the template asks for.
func (t *template) render(lookup func(name string) (any, bool)) (string, error) {
	s := &scope{lookup: lookup}
	var b strings.Builder
	if err := s.run(t.body, &b); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// A scope is the state of one evaluation.
type scope struct {
	lookup func(string) (any, bool)
	set    map[string]any
	spent  int
}

// spend counts n bytes of work.
func (s *scope) spend(n int) error {
	if s.spent += n; s.spent > maxTemplateWork || n > maxTemplateText {
		return errTemplateWork
	}
	return nil
}

func (s *scope) run(body []statement, b *strings.Builder) error {
	for _, st := range body {
		switch {
		case st.branches != nil:
			for _, br := range st.branches {
				yes := true
				if br.condition != nil {
					v, err := br.condition.eval(s)
					if err != nil {
						return err
					}
					yes = truth(v)
				}
				if yes {
					if err := s.run(br.body, b); err != nil {
						return err
					}
					break
				}
			}
		case st.value == nil:
			b.WriteString(st.text)
		default:
			v, err := st.value.eval(s)
			if err != nil {
				return err
			}
			if st.set != "" {
				if s.set == nil {
					s.set = map[string]any{}
				}
				s.set[st.set] = v
				continue
			}
			text := toText(v)
			if err := s.spend(len(text)); err != nil {
				return err
			}
			b.WriteString(text)
		}
	}
	return nil
}

// A templateParser reads tokens. The last token is always tokenEnd, and no
// method passes it.
type templateParser struct {
	tokens []token
	pos    int
	nodes  int
	depth  int
}

func (p *templateParser) peek() token { return p.tokens[p.pos] }

func (p *templateParser) take() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEnd {
		p.pos++
	}
	return t
}

func (p *templateParser) peekOperator(text string) bool {
	t := p.peek()
	return t.kind == tokenOperator && t.text == text
}

func (p *templateParser) acceptOperator(texts ...string) (string, bool) {
	for _, text := range texts {
		if p.peekOperator(text) {
			p.pos++
			return text, true
		}
	}
	return "", false
}

func (p *templateParser) acceptName(text string) bool {
	if t := p.peek(); t.kind == tokenName && t.text == text {
		p.pos++
		return true
	}
	return false
}

func (p *templateParser) expect(kind tokenKind, text string) error {
	if t := p.take(); t.kind != kind || text != "" && t.text != text {
		return fmt.Errorf("%q is not expected here", t.text)
	}
	return nil
}

// count counts one node.
func (p *templateParser) count() error {
	if p.nodes++; p.nodes > maxTemplateNodes {
		return fmt.Errorf("it has more than %d parts", maxTemplateNodes)
	}
	return nil
}

// enter counts one level of nesting.
func (p *templateParser) enter() error {
	if p.depth++; p.depth > maxTemplateDepth {
		return fmt.Errorf("it is nested more than %d deep", maxTemplateDepth)
	}
	return nil
}

func (p *templateParser) leave() { p.depth-- }
