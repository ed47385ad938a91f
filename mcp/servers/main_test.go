package servers

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleKey names the variable by which the test binary learns that it is to be
// something else: one of the servers of roles, or Parley.
const roleKey = "PARLEY_TEST_ROLE"

// TestMain runs the tests, or what one of them starts: this binary is its own
// collection of servers.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		ServeGuard(os.Stdin)
		return
	}
	role := os.Getenv(roleKey)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	run, ok := roles()[role]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such role:", role)
		os.Exit(2)
	}
	run()
}
