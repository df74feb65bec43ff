package console

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// A reader is the other end of a Writer: it may read nothing, or be gone.
type reader struct {
	mu   sync.Mutex
	text strings.Builder
	err  error
	stop chan struct{} // not nil: nobody reads until it is closed
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	stop, err := r.stop, r.err
	r.mu.Unlock()
	if stop != nil {
		<-stop
	}
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func TestAReaderThatReadsNothingHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{stop: make(chan struct{})}
		w := New(r, "unread")
		t.Cleanup(func() { w.Close(0) })
		written := 0
		for ; testutil.ToFloat64(Dropped.WithLabelValues("unread")) < 100; written++ {
			n, err := fmt.Fprintf(w, "line %d\n", written)
			require.NoError(t, err)
			require.Positive(t, n)
		}
		require.LessOrEqual(t, w.bytes, most, "what is kept has a bound")
		require.False(t, w.Flush(time.Second), "nobody has read")
		close(r.stop)
		require.True(t, w.Flush(time.Second))
		fmt.Fprintln(w, "after")
		require.True(t, w.Flush(time.Second))

		lines := strings.Split(strings.TrimSpace(r.text.String()), "\n")
		require.Equal(t, []string{"(100 lines were dropped, because nobody read them)", "after"}, lines[len(lines)-2:])
		require.Len(t, lines, written-100+2)
		for i, l := range lines[:len(lines)-2] {
			require.Equal(t, fmt.Sprintf("line %d", i), l)
		}
	})
}

// The notice comes where the lines are missing, once for each gap, and before what is written later.
func TestANoticeStandsInTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{stop: make(chan struct{})}
		w := New(r, "gap")
		t.Cleanup(func() { w.Close(0) })
		w.Announce(func(dropped int) []byte { return fmt.Appendf(nil, "dropped %d\n", dropped) })
		long := strings.Repeat("x", most/4-1) + "\n"
		for range 7 { // of which four fit
			_, _ = w.Write([]byte(long))
		}
		close(r.stop)
		require.True(t, w.Flush(time.Second))
		_, _ = w.Write([]byte("next\n"))
		require.True(t, w.Flush(time.Second))
		require.Equal(t, strings.Repeat(long, 4)+"dropped 3\nnext\n", r.text.String())
	})
}

func TestAReaderThatIsGoneCostsTheLinesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{err: errors.New("broken pipe")}
		w := New(r, "gone")
		t.Cleanup(func() { w.Close(0) })
		for range 5 {
			fmt.Fprintln(w, "lost")
			require.True(t, w.Flush(time.Second))
		}
		require.Equal(t, 5.0, testutil.ToFloat64(Dropped.WithLabelValues("gone")))
		r.fail(nil)
		fmt.Fprintln(w, "back")
		require.True(t, w.Flush(time.Second))
		require.Equal(t, "back\n(5 lines were dropped, because nobody read them)\n", r.text.String())
	})
}

func TestOneLineThatIsLongerThanTheBoundIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		w := New(r, "long")
		t.Cleanup(func() { w.Close(0) })
		long := strings.Repeat("x", 2*most)
		fmt.Fprint(w, long)
		require.True(t, w.Flush(time.Second))
		require.Equal(t, long, r.text.String())
	})
}

func TestOnlyACharacterDeviceIsATerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	w := &Writer{out: null}
	require.True(t, w.Terminal())
	require.False(t, (&Writer{out: &reader{}}).Terminal())
}
