package home

import "fmt"

// parseBody reads statements up to the block that ends them, one of ends, and
// says which it was. Without ends it reads to the end of the template.
func (p *templateParser) parseBody(ends ...string) ([]statement, string, error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	var body []statement
	for {
		t := p.take()
		switch t.kind {
		case tokenEnd:
			if len(ends) > 0 {
				return nil, "", fmt.Errorf("%q is missing", ends[len(ends)-1])
			}
			return body, "", nil
		case tokenText:
			body = append(body, statement{text: t.text})
		case tokenOpenValue:
			e, err := p.parseExpression()
			if err == nil {
				err = p.expect(tokenCloseValue, "")
			}
			if err != nil {
				return nil, "", err
			}
			body = append(body, statement{value: e})
		case tokenOpenBlock:
			word := p.take().text
			for _, end := range ends {
				if word == end {
					return body, word, nil
				}
			}
			s, err := p.parseBlock(word)
			if err != nil {
				return nil, "", err
			}
			body = append(body, s)
		default:
			return nil, "", fmt.Errorf("%q is not expected here", t.text)
		}
	}
}

// parseBlock reads what follows the first word of {% … %}.
func (p *templateParser) parseBlock(word string) (statement, error) {
	switch word {
	case "if":
		return p.parseIf()
	case "set":
		name := p.take()
		if name.kind != tokenName {
			return statement{}, fmt.Errorf("set needs a name")
		}
		if err := p.expect(tokenOperator, "="); err != nil {
			return statement{}, err
		}
		e, err := p.parseExpression()
		if err != nil {
			return statement{}, err
		}
		return statement{set: name.text, value: e}, p.expect(tokenCloseBlock, "")
	}
	return statement{}, fmt.Errorf("{%% %s %%} is beyond what is understood", word)
}

func (p *templateParser) parseIf() (statement, error) {
	var s statement
	for word := "if"; word != "endif"; {
		var b branch
		if word != "else" {
			e, err := p.parseExpression()
			if err != nil {
				return s, err
			}
			b.condition = e
		}
		if err := p.expect(tokenCloseBlock, ""); err != nil {
			return s, err
		}
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		var err error
		if b.body, word, err = p.parseBody(ends...); err != nil {
			return s, err
		}
		s.branches = append(s.branches, b)
	}
	return s, p.expect(tokenCloseBlock, "")
}

// The grammar of expressions, from what binds least to what binds most:
// a if b else c, or, and, not, comparisons, + -, ~, * / // %, **, unary minus,
// then attributes, calls, filters and tests.

func (p *templateParser) parseExpression() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.parseOr()
	for err == nil && p.acceptName("if") {
		c := conditional{then: e}
		if c.condition, err = p.parseOr(); err != nil {
			return nil, err
		}
		if p.acceptName("else") {
			if c.otherwise, err = p.parseExpression(); err != nil {
				return nil, err
			}
		}
		e, err = c, p.count()
	}
	return e, err
}

func (p *templateParser) parseOr() (expression, error) {
	e, err := p.parseAnd()
	for err == nil && p.acceptName("or") {
		var right expression
		if right, err = p.parseAnd(); err == nil {
			e, err = logical{or: true, left: e, right: right}, p.count()
		}
	}
	return e, err
}

func (p *templateParser) parseAnd() (expression, error) {
	e, err := p.parseNot()
	for err == nil && p.acceptName("and") {
		var right expression
		if right, err = p.parseNot(); err == nil {
			e, err = logical{left: e, right: right}, p.count()
		}
	}
	return e, err
}

func (p *templateParser) parseNot() (expression, error) {
	if p.acceptName("not") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		e, err := p.parseNot()
		return not{e}, err
	}
	return p.parseCompare()
}

func (p *templateParser) parseCompare() (expression, error) {
	e, err := p.parseBinary(0)
	if err != nil {
		return nil, err
	}
	c := comparison{first: e}
	for {
		t := p.peek()
		op := ""
		switch {
		case t.kind == tokenOperator && (t.text == "==" || t.text == "!=" || t.text == "<" || t.text == ">" || t.text == "<=" || t.text == ">="):
			op = t.text
			p.pos++
		case p.acceptName("in"):
			op = "in"
		case t.kind == tokenName && t.text == "not" && p.tokens[p.pos+1].text == "in":
			op = "not in"
			p.pos += 2
		}
		if op == "" {
			break
		}
		right, err := p.parseBinary(0)
		if err == nil {
			err = p.count()
		}
		if err != nil {
			return nil, err
		}
		c.operators, c.others = append(c.operators, op), append(c.others, right)
	}
	if len(c.others) == 0 {
		return e, nil
	}
	return c, nil
}

// binaryLevels are the binary operators by how tightly they bind.
func binaryLevel(level int) []string {
	switch level {
	case 0:
		return []string{"+", "-"}
	case 1:
		return []string{"~"}
	case 2:
		return []string{"*", "/", "//", "%"}
	default:
		return []string{"**"}
	}
}

func (p *templateParser) parseBinary(level int) (expression, error) {
	if level == 4 {
		return p.parseUnary(true)
	}
	e, err := p.parseBinary(level + 1)
	for err == nil {
		op, ok := p.acceptOperator(binaryLevel(level)...)
		if !ok {
			break
		}
		var right expression
		if right, err = p.parseBinary(level + 1); err == nil {
			e, err = binary{operator: op, left: e, right: right}, p.count()
		}
	}
	return e, err
}

func (p *templateParser) parseUnary(filters bool) (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expression
	var err error
	if op, ok := p.acceptOperator("-", "+"); ok {
		if e, err = p.parseUnary(false); err == nil && op == "-" {
			e = binary{operator: "-", left: literal{int64(0)}, right: e}
		}
	} else {
		if e, err = p.parsePrimary(); err == nil {
			e, err = p.parsePostfix(e)
		}
	}
	if err == nil && filters {
		e, err = p.parseFilters(e)
	}
	return e, err
}

func (p *templateParser) parsePrimary() (expression, error) {
	t := p.take()
	switch t.kind {
	case tokenNumber:
		return literal{t.value}, p.count()
	case tokenString:
		s := t.text
		for p.peek().kind == tokenString {
			s += p.take().text
		}
		return literal{s}, p.count()
	case tokenName:
		switch t.text {
		case "true", "True":
			return literal{true}, p.count()
		case "false", "False":
			return literal{false}, p.count()
		case "none", "None":
			return literal{nil}, p.count()
		}
		if p.peekOperator("(") {
			if !isFunction(t.text) {
				return nil, fmt.Errorf("the function %s is beyond what is understood", t.text)
			}
			p.pos++
			args, err := p.parseArguments()
			return filter{name: t.text, args: args, function: true}, err
		}
		return variable(t.text), p.count()
	case tokenOperator:
		switch t.text {
		case "(":
			e, err := p.parseExpression()
			if err == nil {
				err = p.expect(tokenOperator, ")")
			}
			return e, err
		case "[":
			items, err := p.parseList("]")
			return list(items), err
		case "{":
			return p.parseDictionary()
		}
	}
	return nil, fmt.Errorf("a value is missing before %q", t.text)
}

func (p *templateParser) parseList(closing string) ([]expression, error) {
	var items []expression
	for {
		if _, ok := p.acceptOperator(closing); ok {
			return items, p.count()
		}
		if len(items) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
			if _, ok := p.acceptOperator(closing); ok {
				return items, p.count()
			}
		}
		e, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
}

func (p *templateParser) parseDictionary() (expression, error) {
	var d dictionary
	for {
		if _, ok := p.acceptOperator("}"); ok {
			return d, p.count()
		}
		if len(d.keys) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
			if _, ok := p.acceptOperator("}"); ok {
				return d, p.count()
			}
		}
		k, err := p.parseExpression()
		if err == nil {
			err = p.expect(tokenOperator, ":")
		}
		if err != nil {
			return nil, err
		}
		v, err := p.parseExpression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, k), append(d.values, v)
	}
}

// parsePostfix reads .name, .name(…), [index] and [from:to].
func (p *templateParser) parsePostfix(e expression) (expression, error) {
	for {
		op, ok := p.acceptOperator(".", "[")
		if !ok {
			return e, nil
		}
		if err := p.count(); err != nil {
			return nil, err
		}
		if op == "[" {
			var err error
			if e, err = p.parseIndex(e); err != nil {
				return nil, err
			}
			continue
		}
		t := p.take()
		switch {
		case t.kind == tokenNumber:
			e = index{of: e, at: literal{t.value}}
		case t.kind != tokenName:
			return nil, fmt.Errorf("a name is missing after the dot")
		case p.peekOperator("("):
			if !isMethod(t.text) {
				return nil, fmt.Errorf("the method %s is beyond what is understood", t.text)
			}
			p.pos++
			args, err := p.parseArguments()
			if err != nil {
				return nil, err
			}
			e = filter{name: "." + t.text, of: e, args: args}
		default:
			e = index{of: e, at: literal{t.text}}
		}
	}
}

func (p *templateParser) parseIndex(of expression) (expression, error) {
	var from, to expression
	var err error
	if !p.peekOperator(":") {
		if from, err = p.parseExpression(); err != nil {
			return nil, err
		}
		if _, ok := p.acceptOperator("]"); ok {
			return index{of: of, at: from}, nil
		}
	}
	if err := p.expect(tokenOperator, ":"); err != nil {
		return nil, err
	}
	if !p.peekOperator("]") {
		if to, err = p.parseExpression(); err != nil {
			return nil, err
		}
	}
	return slice{of: of, from: from, to: to}, p.expect(tokenOperator, "]")
}

// parseFilters reads | name(…) and is [not] test.
func (p *templateParser) parseFilters(e expression) (expression, error) {
	for {
		if err := p.count(); err != nil {
			return nil, err
		}
		if _, ok := p.acceptOperator("|"); ok {
			t := p.take()
			if t.kind != tokenName || !isFilter(t.text) {
				return nil, fmt.Errorf("the filter %q is beyond what is understood", t.text)
			}
			f := filter{name: t.text, of: e}
			if _, ok := p.acceptOperator("("); ok {
				var err error
				if f.args, err = p.parseArguments(); err != nil {
					return nil, err
				}
			}
			e = f
			continue
		}
		if !p.acceptName("is") {
			return e, nil
		}
		t := test{of: e, negated: p.acceptName("not")}
		t.name = p.take().text
		if !isTest(t.name) {
			return nil, fmt.Errorf("the test %q is beyond what is understood", t.name)
		}
		e = t
	}
}

// parseArguments reads what is between the parentheses of a call; named
// arguments follow the others.
func (p *templateParser) parseArguments() (arguments, error) {
	var a arguments
	for {
		if _, ok := p.acceptOperator(")"); ok {
			return a, p.count()
		}
		if len(a.values)+len(a.named) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return a, err
			}
		}
		if t := p.peek(); t.kind == tokenName && p.tokens[p.pos+1].kind == tokenOperator && p.tokens[p.pos+1].text == "=" {
			p.pos += 2
			e, err := p.parseExpression()
			if err != nil {
				return a, err
			}
			if a.named == nil {
				a.named = map[string]expression{}
			}
			a.named[t.text] = e
			continue
		}
		e, err := p.parseExpression()
		if err != nil {
			return a, err
		}
		a.values = append(a.values, e)
	}
}
