package doctor

import (
	"errors"
	"fmt"

	"parley/internal/config"
)

// Faults is the report of a configuration that cannot be used. err is of
// [config.Load], or of what was made with the configuration.
func Faults(err error) Report {
	var r Report
	r.faults(err)
	return r
}

func (r *Report) faults(err error) {
	const check = "config"
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // joined errors are taken apart here
		for _, e := range joined.Unwrap() {
			r.faults(e)
		}
		return
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		r.faults(wrapped)
		return
	}
	var f *config.Error
	if !errors.As(err, &f) {
		r.fail(check, "correct the configuration; 'parley check' looks at it alone", "%v", err)
		return
	}
	where := f.File
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	r.fail(check, f.Remedy, "%s: %s: %s", where, f.Key, f.Problem)
}
