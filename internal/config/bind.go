package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A binder lays a parsed document over a Config. It goes on after a fault, so
// that one run reports them all; a field whose value is at fault keeps its
// default. The TOML library's own decoding stops at the first fault and knows no
// tables whose keys depend on their type.
type binder struct{ *report }

// table binds the members of src to the fields of the struct dst.
func (b *binder) table(p path, src map[string]any, dst reflect.Value) {
	fields := fieldsOf(dst.Type())
	for _, name := range slices.Sorted(maps.Keys(src)) {
		i, ok := fields[name]
		if !ok {
			b.unknown(p, name, slices.Sorted(maps.Keys(fields)))
			continue
		}
		b.value(p.key(name), src[name], dst.Field(i))
	}
}

// fieldsOf maps the keys of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if key, ok := t.Field(i).Tag.Lookup("toml"); ok {
			fields[key] = i
		}
	}
	return fields
}

func (b *binder) unknown(p path, name string, known []string) {
	remedy := "the keys here are " + strings.Join(known, ", ")
	if home := sectionOf(name); home != "" {
		remedy = "it belongs in [" + home + "]"
	} else if near := nearest(name, known); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	b.add(p.key(name), "is not a known key", remedy)
}

// sectionOf returns the only section that has a key of this name, "" when there
// is none or there are several.
func sectionOf(key string) string {
	var homes []string
	config := reflect.TypeFor[Config]()
	for name, i := range fieldsOf(config) {
		if section := config.Field(i).Type; section.Kind() == reflect.Struct {
			if _, ok := fieldsOf(section)[key]; ok {
				homes = append(homes, name)
			}
		}
	}
	if len(homes) != 1 {
		return ""
	}
	return homes[0]
}

// value binds one value to a field of any kind a Config has.
func (b *binder) value(p path, src any, dst reflect.Value) {
	switch field := dst.Addr().Interface().(type) {
	case *time.Duration:
		b.duration(p, src, field)
		return
	case *Secret:
		if s, ok := src.(string); ok {
			*field = newSecret(s, "")
		} else {
			b.mismatch(p, src, `text, such as "env:NAME" or "file:/path"`)
		}
		return
	case *map[string]Role:
		b.roles(p, src, *field)
		return
	case *map[string]any:
		if table, ok := src.(map[string]any); ok {
			*field = table
		} else {
			b.mismatch(p, src, "a table of values")
		}
		return
	}
	switch dst.Kind() {
	case reflect.Struct:
		b.structure(p, src, dst)
	case reflect.Map:
		b.tables(p, src, dst)
	case reflect.Slice:
		b.list(p, src, dst)
	case reflect.Pointer: // to tell nothing from zero
		element := reflect.New(dst.Type().Elem())
		b.value(p, src, element.Elem())
		dst.Set(element)
	default:
		b.scalar(p, src, dst)
	}
}

func (b *binder) scalar(p path, src any, dst reflect.Value) {
	switch dst.Kind() {
	case reflect.String:
		if s, ok := src.(string); ok {
			dst.SetString(s)
			return
		}
		b.mismatch(p, src, "text in quotes")
	case reflect.Bool:
		if v, ok := src.(bool); ok {
			dst.SetBool(v)
			return
		}
		b.mismatch(p, src, "true or false")
	case reflect.Int:
		if n, ok := src.(int64); ok && !dst.OverflowInt(n) {
			dst.SetInt(n)
			return
		}
		b.mismatch(p, src, fmt.Sprintf("a whole number, such as %d", dst.Int()))
	case reflect.Float64:
		switch n := src.(type) {
		case int64:
			dst.SetFloat(float64(n))
			return
		case float64:
			if !math.IsNaN(n) && !math.IsInf(n, 0) {
				dst.SetFloat(n)
				return
			}
		}
		b.mismatch(p, src, fmt.Sprintf("a number, such as %g", dst.Float()))
	}
}

func (b *binder) duration(p path, src any, dst *time.Duration) {
	s, ok := src.(string)
	if !ok {
		b.mismatch(p, src, fmt.Sprintf("text with a unit, such as %q", formatDuration(*dst)))
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		b.add(p, fmt.Sprintf("%q is no duration", s),
			fmt.Sprintf("give a number with a unit (ms, s, m or h), such as %q", formatDuration(*dst)))
		return
	}
	*dst = d
}

// formatDuration prints 5s and 2m where Duration's own String has 2m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// list binds an array of text or of tables. What the file lists replaces the
// default, it does not add to it.
func (b *binder) list(p path, src any, dst reflect.Value) {
	array := reflect.ValueOf(src)
	if array.Kind() != reflect.Slice {
		b.mismatch(p, src, "an array in brackets")
		return
	}
	out := reflect.MakeSlice(dst.Type(), array.Len(), array.Len())
	for i := range array.Len() {
		b.value(p.index(i), array.Index(i).Interface(), out.Index(i))
	}
	dst.Set(out)
}

// tables binds a table of named tables. One that the default has, too, keeps what
// the file does not say.
func (b *binder) tables(p path, src any, dst reflect.Value) {
	named, ok := src.(map[string]any)
	if !ok {
		b.mismatch(p, src, "a table for each name")
		return
	}
	if dst.IsNil() && len(named) > 0 {
		dst.Set(reflect.MakeMap(dst.Type()))
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		element := reflect.New(dst.Type().Elem()).Elem()
		if old := dst.MapIndex(reflect.ValueOf(name)); old.IsValid() {
			element.Set(old)
		}
		b.value(p.key(name), named[name], element)
		dst.SetMapIndex(reflect.ValueOf(name), element)
	}
}

// roles binds the roles. All others start from the default role, except for its
// choice of providers, which is settled when every role is known.
func (b *binder) roles(p path, src any, dst map[string]Role) {
	named, ok := src.(map[string]any)
	if !ok {
		b.mismatch(p, src, "a table for each role")
		return
	}
	bind := func(name string, role Role) {
		b.value(p.key(name), named[name], reflect.ValueOf(&role).Elem())
		dst[name] = role
	}
	if _, ok := named[DefaultRole]; ok {
		bind(DefaultRole, dst[DefaultRole])
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if name != DefaultRole {
			role := dst[DefaultRole]
			role.Provider, role.ASR, role.LLM, role.TTS, role.Vision = "", nil, nil, nil, nil
			role.ByVoice = false // what a role may do, each must say for itself
			bind(name, role)
		}
	}
}

func (b *binder) structure(p path, src any, dst reflect.Value) {
	table, ok := src.(map[string]any)
	switch {
	case !ok:
		b.mismatch(p, src, "a table")
	case len(variantsOf(dst.Type())) > 0:
		b.union(p, table, dst)
	default:
		b.table(p, table, dst)
	}
}

// variantsOf maps the types of a provider table to the fields that hold them.
func variantsOf(t reflect.Type) map[string]int {
	variants := map[string]int{}
	for i := range t.NumField() {
		if name, ok := t.Field(i).Tag.Lookup("variant"); ok {
			variants[name] = i
		}
	}
	return variants
}

// union binds a table whose keys depend on its type. A type other than that of
// the default's table of this name starts from that type's own defaults.
func (b *binder) union(p path, src map[string]any, dst reflect.Value) {
	variants := variantsOf(dst.Type())
	types := quotedList(slices.Sorted(maps.Keys(variants)))
	typ := dst.FieldByName("Type").String()
	if v, ok := src["type"]; ok {
		b.value(p.key("type"), v, reflect.ValueOf(&typ).Elem())
	}
	if typ == "" {
		if _, ok := src["type"].(string); ok || src["type"] == nil {
			b.add(p.key("type"), "is missing", "say which kind of provider this is: "+types)
		}
		return
	}
	i, ok := variants[typ]
	if !ok {
		remedy := "the types here are " + types
		if near := nearest(typ, slices.Sorted(maps.Keys(variants))); near != "" {
			remedy = fmt.Sprintf("did you mean %q?", near)
		}
		b.add(p.key("type"), fmt.Sprintf("%q is not a type of provider", typ), remedy)
		return
	}
	fresh := reflect.New(dst.Field(i).Type().Elem())
	if old := dst.Field(i); old.IsNil() {
		fresh.Interface().(variant).setDefaults()
	} else {
		fresh.Elem().Set(old.Elem())
	}
	dst.SetZero()
	dst.FieldByName("Type").SetString(typ)
	dst.Field(i).Set(fresh)
	rest := maps.Clone(src)
	delete(rest, "type")
	b.foreign(p, rest, dst.Type(), typ)
	b.table(p, rest, fresh.Elem())
}

// foreign reports, and takes out of src, the keys that other types of provider
// have and this one has not.
func (b *binder) foreign(p path, src map[string]any, t reflect.Type, typ string) {
	variants := variantsOf(t)
	own := fieldsOf(t.Field(variants[typ]).Type.Elem())
	for _, other := range slices.Sorted(maps.Keys(variants)) {
		for key := range fieldsOf(t.Field(variants[other]).Type.Elem()) {
			if _, has := src[key]; !has {
				continue
			}
			if _, ok := own[key]; !ok {
				b.add(p.key(key), fmt.Sprintf("is not a key of type %q", typ),
					fmt.Sprintf("it belongs to type %q; remove it or change the type", other))
				delete(src, key)
			}
		}
	}
}

func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, ", ")
}

func (b *binder) mismatch(p path, src any, want string) {
	b.add(p, "is "+describe(src), "give "+want)
}

// describe names the kind of a TOML value, never the value: it may be a secret
// in the wrong place.
func describe(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	}
	return "an array"
}
