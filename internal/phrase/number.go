package phrase

import "strconv"

// maxNumberWords is the longest number looked for, in words: "one hundred and
// twenty five" has five, 一百二十五 has five characters, 一千 two.
const maxNumberWords = 6

// maxDigits keeps numbers in digits within an int on every platform.
const maxDigits = 9

// A reading is one way to take a number from the front of some tokens.
type reading struct {
	value  int
	length int // in tokens
}

// readings lists the numbers that tokens may begin with, longest first. A
// following "percent" belongs to the number, and so does 百分之 before one.
func readings(tokens []token) []reading {
	if prefix := percentPrefix(tokens); prefix > 0 {
		var list []reading
		for _, r := range plainReadings(tokens[prefix:]) {
			list = append(list, reading{r.value, r.length + prefix})
		}
		return list
	}
	var list []reading
	for _, r := range plainReadings(tokens) {
		if n := percentSuffix(tokens[r.length:]); n > 0 {
			list = append(list, reading{r.value, r.length + n})
		}
		list = append(list, r)
	}
	return list
}

func percentPrefix(tokens []token) int {
	if len(tokens) > 3 && tokens[0].key == "百" && tokens[1].key == "分" && tokens[2].key == "之" {
		return 3
	}
	return 0
}

func percentSuffix(tokens []token) int {
	switch {
	case len(tokens) > 0 && tokens[0].key == "percent":
		return 1
	case len(tokens) > 1 && tokens[0].key == "per" && tokens[1].key == "cent":
		return 2
	}
	return 0
}

func plainReadings(tokens []token) []reading {
	if len(tokens) == 0 {
		return nil
	}
	if v, ok := digits(tokens[0].key); ok {
		return []reading{{v, 1}}
	}
	var list []reading
	for n := min(len(tokens), maxNumberWords); n > 0; n-- {
		if v, ok := english(tokens[:n]); ok {
			list = append(list, reading{v, n})
		} else if v, ok := chinese(tokens[:n]); ok {
			list = append(list, reading{v, n})
		}
	}
	return list
}

func digits(s string) (int, bool) {
	if len(s) == 0 || len(s) > maxDigits {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	v, err := strconv.Atoi(s)
	return v, err == nil
}

// english reads all of tokens as a number from zero to one thousand.
func english(tokens []token) (int, bool) {
	w := make([]string, len(tokens))
	for i, t := range tokens {
		w[i] = t.key
	}
	if len(w) == 1 && w[0] == "zero" {
		return 0, true
	}
	hundreds := 0
	if len(w) >= 2 && (w[1] == "hundred" || w[1] == "thousand") {
		head, ok := unit(w[0])
		if w[0] == "a" {
			head, ok = 1, true
		}
		if !ok {
			return 0, false
		}
		if w[1] == "thousand" {
			return 1000, head == 1 && len(w) == 2
		}
		hundreds, w = head*100, w[2:]
		if len(w) == 0 {
			return hundreds, true
		}
		if w[0] == "and" {
			w = w[1:]
		}
	}
	rest, ok := belowHundred(w)
	return hundreds + rest, ok
}

// belowHundred reads all of w as a number from one to ninety-nine.
func belowHundred(w []string) (int, bool) {
	if len(w) == 0 || len(w) > 2 {
		return 0, false
	}
	tens, isTens := tensValue(w[0])
	if len(w) == 2 {
		ones, ok := unit(w[1])
		return tens + ones, isTens && ok
	}
	if isTens {
		return tens, true
	}
	if v, ok := unit(w[0]); ok {
		return v, true
	}
	return teen(w[0])
}

// The words of numbers; the value follows from the position.
const (
	firstUnit = 1
	firstTeen = 10
	firstTens = 2
)

func unitWords() []string {
	return []string{"one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}
}

func teenWords() []string {
	return []string{"ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"}
}

func tensWords() []string {
	return []string{"twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
}

func position(list []string, w string) int {
	for i, s := range list {
		if s == w {
			return i
		}
	}
	return -1
}

func unit(w string) (int, bool) {
	i := position(unitWords(), w)
	return i + firstUnit, i >= 0
}

func teen(w string) (int, bool) {
	i := position(teenWords(), w)
	return i + firstTeen, i >= 0
}

func tensValue(w string) (int, bool) {
	i := position(tensWords(), w)
	return (i + firstTens) * 10, i >= 0
}

// chinese reads all of tokens as a number from 零 to 一千: with units (一百零五,
// 十五, 两百, the colloquial 一百五 for 150) or digit by digit (五零).
func chinese(tokens []token) (int, bool) {
	total, pending, lastUnit, zero := 0, -1, 0, false
	positional, units := 0, false
	for i, t := range tokens {
		if d, ok := chineseDigit(t.key); ok {
			positional = positional*10 + d
			switch {
			case units && d == 0:
				zero = true
			case pending >= 0 && units:
				return 0, false
			default:
				pending = d
			}
			continue
		}
		u, ok := chineseUnit(t.key)
		if !ok || pending == 0 || units && u >= lastUnit || i > 1 && !units {
			return 0, false
		}
		if pending < 0 {
			if u != 10 || units {
				return 0, false
			}
			pending = 1
		}
		total, pending, lastUnit, units = total+pending*u, -1, u, true
		zero = false
	}
	switch {
	case !units:
		return positional, len(tokens) <= 3
	case pending < 0:
		return total, !zero && total <= 1000
	case lastUnit == 100 && !zero:
		return total + pending*10, true
	}
	return total + pending, lastUnit < 1000
}

func chineseDigit(s string) (int, bool) {
	switch s {
	case "〇":
		return 0, true
	case "两":
		return 2, true
	}
	i := position([]string{"零", "一", "二", "三", "四", "五", "六", "七", "八", "九"}, s)
	return i, i >= 0
}

func chineseUnit(s string) (int, bool) {
	switch s {
	case "十":
		return 10, true
	case "百":
		return 100, true
	case "千":
		return 1000, true
	}
	return 0, false
}
