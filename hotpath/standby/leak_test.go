package standby

import (
	"testing"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it. fasthttp's caretakers notice within ten
// seconds that their server is gone, and its clock belongs to the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
