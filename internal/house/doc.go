// Package house holds the project's rules that no compiler knows, as tests: who
// may import whom, how long a file may be, that documents link to what exists.
package house
