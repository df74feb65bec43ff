package servers

// A TB is what this package needs of a *testing.T or *testing.B. It is not
// testing.TB so that a program that is no test can start servers without
// linking the package testing.
type TB interface {
	Helper()
	Cleanup(f func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Logf(format string, args ...any)
}
