package front

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Bytes come out as they went in, whatever the sizes of reads and writes.
func TestAHalfKeepsBytesInOrder(t *testing.T) {
	h := newHalf()
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(rand.Int())
	}
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(3*pipeBytes))
			if _, err := h.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		h.end()
	}()
	var got bytes.Buffer
	for buf := make([]byte, 2*pipeBytes); ; {
		n, err := h.Read(buf[:1+rand.IntN(len(buf)-1)])
		got.Write(buf[:n])
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(want, got.Bytes()))
	require.Nil(t, h.buf, "an empty half holds no memory")
}

func TestAHalfHasADeadlineAndAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, buf := newHalf(), make([]byte, 10)
		began := time.Now()
		h.setDeadline(began.Add(time.Minute))
		_, err := h.Read(buf)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		_, err = h.Write([]byte("late"))
		require.NoError(t, err)
		n, err := h.Read(buf) // what is there is read, also when the deadline is over
		require.NoError(t, err)
		require.Equal(t, "late", string(buf[:n]))

		h.setDeadline(time.Now().Add(time.Hour))
		go func() {
			time.Sleep(time.Second)
			h.setDeadline(time.Unix(1, 0)) // a read under way returns
		}()
		_, err = h.Read(buf)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		h.setDeadline(time.Time{})
		_, err = h.Write([]byte("rest"))
		require.NoError(t, err)
		require.False(t, h.over())
		h.end()
		require.True(t, h.over())
		_, err = h.Write([]byte("more"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
		n, err = h.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "rest", string(buf[:n]))
		_, err = h.Read(buf)
		require.ErrorIs(t, err, io.EOF)
	})
}

// A write to a full half waits, and fails when the half breaks.
func TestAFullHalfHoldsItsWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalf()
		wrote := make(chan int)
		go func() {
			n, err := h.Write(make([]byte, 2*pipeBytes))
			if err != io.ErrClosedPipe {
				t.Error(err)
			}
			wrote <- n
		}()
		synctest.Wait()
		require.Equal(t, pipeBytes, h.to)
		h.abort()
		require.Equal(t, pipeBytes, <-wrote)
		_, err := h.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}
