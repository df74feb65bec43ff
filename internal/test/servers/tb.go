package servers

// A TB has the methods of *testing.T and *testing.B that this package uses. It is not testing.TB,
// so that other programs can start servers without linking the package testing.
type TB interface {
	Helper()
	Cleanup(f func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Logf(format string, args ...any)
}
