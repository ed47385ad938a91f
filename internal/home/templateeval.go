package home

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// An expression is a parsed part of a template.
type expression interface {
	eval(s *scope) (any, error)
}

type (
	literal  struct{ value any }
	variable string
	list     []expression
	// dictionary is {key: value, …}.
	dictionary  struct{ keys, values []expression }
	index       struct{ of, at expression }
	slice       struct{ of, from, to expression }
	not         struct{ of expression }
	conditional struct{ condition, then, otherwise expression }
	logical     struct {
		or          bool
		left, right expression
	}
	comparison struct {
		first     expression
		operators []string
		others    []expression
	}
	binary struct {
		operator    string
		left, right expression
	}
	test struct {
		of      expression
		name    string
		negated bool
	}
	// filter is a filter, a method, whose name begins with a dot, or a function.
	filter struct {
		name     string
		of       expression
		args     arguments
		function bool
	}
	arguments struct {
		values []expression
		named  map[string]expression
	}
)

func (e literal) eval(*scope) (any, error) { return e.value, nil }

func (e variable) eval(s *scope) (any, error) {
	if v, ok := s.set[string(e)]; ok {
		return v, nil
	}
	if v, ok := s.lookup(string(e)); ok {
		return fromJSON(v), nil
	}
	return undefined{}, nil
}

func (e list) eval(s *scope) (any, error) {
	items := make([]any, len(e))
	for i, item := range e {
		v, err := item.eval(s)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return items, nil
}

func (e dictionary) eval(s *scope) (any, error) {
	d := make(map[any]any, len(e.keys))
	for i := range e.keys {
		k, err := e.keys[i].eval(s)
		if err != nil {
			return nil, err
		}
		if k, err = toKey(k); err != nil {
			return nil, err
		}
		if d[k], err = e.values[i].eval(s); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// toKey makes a dictionary's key: whole numbers are one key whatever their type.
func toKey(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, int64, bool:
		return v, nil
	case float64:
		if n := int64(v); float64(n) == v {
			return n, nil
		}
		return v, nil
	}
	return nil, errors.New("only texts and numbers can be keys")
}

func (e index) eval(s *scope) (any, error) {
	of, err := e.of.eval(s)
	if err != nil {
		return nil, err
	}
	at, err := e.at.eval(s)
	if err != nil {
		return nil, err
	}
	switch of := of.(type) {
	case undefined:
		return nil, fmt.Errorf("there is no value to take %s of", toText(at))
	case map[string]any:
		if key, ok := at.(string); ok {
			if v, ok := of[key]; ok {
				return fromJSON(v), nil
			}
		}
	case map[any]any:
		if key, err := toKey(at); err == nil {
			if v, ok := of[key]; ok {
				return v, nil
			}
		}
	case []any:
		if i, ok := position(at, len(of)); ok {
			return fromJSON(of[i]), nil
		}
	case string:
		runes := []rune(of)
		if err := s.spend(len(of)); err != nil {
			return nil, err
		}
		if i, ok := position(at, len(runes)); ok {
			return string(runes[i]), nil
		}
	}
	return undefined{}, nil
}

// position returns the place in n items that an index means; -1 is the last.
func position(at any, n int) (int, bool) {
	i, ok := at.(int64)
	if !ok {
		return 0, false
	}
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

func (e slice) eval(s *scope) (any, error) {
	of, err := e.of.eval(s)
	if err != nil {
		return nil, err
	}
	bound := func(x expression, n, otherwise int) (int, error) {
		if x == nil {
			return otherwise, nil
		}
		v, err := x.eval(s)
		if err != nil {
			return 0, err
		}
		i, ok := v.(int64)
		if !ok {
			return 0, errors.New("the bounds of a slice must be whole numbers")
		}
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, 0), int64(n))), nil
	}
	cut := func(n int) (int, int, error) {
		from, err := bound(e.from, n, 0)
		if err != nil {
			return 0, 0, err
		}
		to, err := bound(e.to, n, n)
		return from, max(from, to), err
	}
	switch of := of.(type) {
	case string:
		if err := s.spend(len(of)); err != nil {
			return nil, err
		}
		runes := []rune(of)
		from, to, err := cut(len(runes))
		if err != nil {
			return nil, err
		}
		return string(runes[from:to]), nil
	case []any:
		from, to, err := cut(len(of))
		if err != nil {
			return nil, err
		}
		return of[from:to:to], nil
	}
	return nil, errors.New("only texts and lists can be cut")
}

func (e not) eval(s *scope) (any, error) {
	v, err := e.of.eval(s)
	return !truth(v), err
}

func (e conditional) eval(s *scope) (any, error) {
	c, err := e.condition.eval(s)
	switch {
	case err != nil:
		return nil, err
	case truth(c):
		return e.then.eval(s)
	case e.otherwise == nil:
		return undefined{}, nil
	}
	return e.otherwise.eval(s)
}

func (e logical) eval(s *scope) (any, error) {
	v, err := e.left.eval(s)
	if err != nil || truth(v) == e.or {
		return v, err
	}
	return e.right.eval(s)
}

func (e comparison) eval(s *scope) (any, error) {
	left, err := e.first.eval(s)
	if err != nil {
		return nil, err
	}
	for i, op := range e.operators {
		right, err := e.others[i].eval(s)
		if err != nil {
			return nil, err
		}
		ok, err := compare(s, op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func compare(s *scope, op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		return contains(s, b, a)
	case "not in":
		ok, err := contains(s, b, a)
		return !ok, err
	}
	order := 0
	x, isNumber := number(a)
	y, areNumbers := number(b)
	if isNumber && areNumbers {
		switch {
		case x < y:
			order = -1
		case x > y:
			order = 1
		}
	} else {
		x, isText := a.(string)
		y, areTexts := b.(string)
		if !isText || !areTexts {
			return false, fmt.Errorf("%s and %s cannot be compared", kindOf(a), kindOf(b))
		}
		order = strings.Compare(x, y)
	}
	switch op {
	case "<":
		return order < 0, nil
	case ">":
		return order > 0, nil
	case "<=":
		return order <= 0, nil
	}
	return order >= 0, nil
}

// equal compares as Jinja does: numbers by value, and nothing else across kinds.
func equal(a, b any) bool {
	x, isNumber := number(a)
	y, areNumbers := number(b)
	if isNumber || areNumbers {
		return isNumber && areNumbers && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		return ok && a == b
	case undefined:
		_, ok := b.(undefined)
		return ok
	}
	return false
}

func contains(s *scope, of, v any) (bool, error) {
	switch of := of.(type) {
	case string:
		text, ok := v.(string)
		if !ok {
			return false, errors.New("only a text can be in a text")
		}
		return strings.Contains(of, text), s.spend(len(of))
	case []any:
		for _, item := range of {
			if equal(fromJSON(item), v) {
				return true, nil
			}
		}
		return false, s.spend(len(of))
	case map[string]any:
		key, ok := v.(string)
		if ok {
			_, ok = of[key]
		}
		return ok, nil
	case map[any]any:
		key, err := toKey(v)
		if err != nil {
			return false, err
		}
		_, ok := of[key]
		return ok, nil
	}
	return false, fmt.Errorf("nothing can be in %s", kindOf(of))
}

func (e binary) eval(s *scope) (any, error) {
	a, err := e.left.eval(s)
	if err != nil {
		return nil, err
	}
	b, err := e.right.eval(s)
	if err != nil {
		return nil, err
	}
	if e.operator == "~" {
		text := toText(a) + toText(b)
		return text, s.spend(len(text))
	}
	if text, ok := a.(string); ok {
		if other, ok := b.(string); ok && e.operator == "+" {
			return text + other, s.spend(len(text) + len(other))
		}
		if e.operator == "%" {
			return format(s, text, []any{b})
		}
	}
	return arithmetic(e.operator, a, b)
}

// arithmetic works as Python does: whole numbers stay whole except in division,
// and // and % round towards minus infinity.
func arithmetic(op string, a, b any) (any, error) {
	x, ok := number(a)
	y, ok2 := number(b)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%s %s %s has no value", kindOf(a), op, kindOf(b))
	}
	if (op == "/" || op == "//" || op == "%") && y == 0 {
		return nil, errors.New("division by zero")
	}
	var r float64
	switch op {
	case "+":
		r = x + y
	case "-":
		r = x - y
	case "*":
		r = x * y
	case "/":
		return x / y, nil
	case "//":
		r = math.Floor(x / y)
	case "%":
		r = x - y*math.Floor(x/y)
	case "**":
		r = math.Pow(x, y)
	}
	_, floatA := a.(float64)
	_, floatB := b.(float64)
	// Above 2⁵³ a float64 no longer tells whole numbers apart.
	if !floatA && !floatB && math.Abs(r) < 1<<53 && r == math.Trunc(r) {
		return int64(r), nil
	}
	return r, nil
}

func (e test) eval(s *scope) (any, error) {
	v, err := e.of.eval(s)
	if err != nil {
		return nil, err
	}
	_, isUndefined := v.(undefined)
	yes := false
	switch e.name {
	case "defined":
		yes = !isUndefined
	case "undefined":
		yes = isUndefined
	case "none":
		yes = v == nil
	case "number":
		_, isBool := v.(bool)
		_, ok := number(v)
		yes = ok && !isBool
	case "string":
		_, yes = v.(string)
	case "boolean":
		_, yes = v.(bool)
	case "true":
		yes = v == true
	case "false":
		yes = v == false
	}
	return yes != e.negated, nil
}

func isTest(name string) bool {
	switch name {
	case "defined", "undefined", "none", "number", "string", "boolean", "true", "false":
		return true
	}
	return false
}
