package api

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// connected returns both ends of a connection of Listen.
func connected(t *testing.T) (*clientConn, *net.TCPConn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := Listen(inner, nil)
	t.Cleanup(func() { _ = ln.Close() })
	c, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	there, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = there.Close() })
	return there.(*clientConn), c.(*net.TCPConn)
}

func TestAClientThatReadsAtTheLeastRateGetsMoreTimeAndASlowerOneDoesNot(t *testing.T) {
	for name, c := range map[string]struct {
		age        time.Duration // of the answer, beyond the patience
		sent, seen int64         // bytes in all, and when the deadline was prolonged last
		more       bool
	}{
		"nothing is taken":             {0, 0, 0, false},
		"at the least rate":            {100 * time.Second, 101 * intake.MinRate, 1, true},
		"slower than that":             {100 * time.Second, 99 * intake.MinRate, 1, false},
		"a fast one that pauses":       {time.Second, 64 << 20, 64 << 20, false},
		"a fast one at its first time": {time.Second, 64 << 20, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			here, _ := connected(t)
			here.sent.Store(7) // of answers before this one
			require.NoError(t, here.SetWriteDeadline(time.Now().Add(-c.age)))
			here.sent.Add(c.sent)
			if c.seen > 0 {
				here.pace.seen = 7 + c.seen
			}
			require.Equal(t, c.more, here.prolong())
		})
	}
}

func TestAClientThatIsCutGetsNothingMore(t *testing.T) {
	here, _ := connected(t)
	require.NoError(t, here.SetWriteDeadline(time.Now().Add(time.Hour)))
	ended := make(chan error, 1)
	go func() {
		_, err := here.Write(make([]byte, 64<<20))
		ended <- err
	}()
	require.Eventually(t, func() bool { here.Cut(); return len(ended) == 1 }, 30*time.Second, time.Millisecond)
	require.Error(t, <-ended)
	_, err := here.Write([]byte("x"))
	require.Error(t, err)
}

// A line may be so slow that an answer takes longer than the deadline which the server sets for all
// answers, and comes whole.
func TestALargeAnswerOutlastsTheDeadlineOfSmallOnes(t *testing.T) {
	const size = 8 << 20
	answers := share.New(share.Options{Most: 4 * size})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(func(rc *fasthttp.RequestCtx) { rc.SetBody(bytes.Repeat([]byte("x"), size)) },
		ServerOptions{Answers: answers})
	s.WriteTimeout = 5 * time.Millisecond
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listen(inner, nil)) }()
	c, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	got := 0
	for buf := make([]byte, 512<<10); ; {
		time.Sleep(10 * time.Millisecond) // the line is slow
		n, err := c.Read(buf)
		if got += n; err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
	require.Greater(t, got, size)
	require.NoError(t, s.Shutdown())
	require.NoError(t, <-served)
	require.Zero(t, answers.Taken())
}

// Clients that read nothing hold the memory of their answers until another one needs it.
func TestUnderPressureTheAnswerThatNobodyReadsIsEnded(t *testing.T) {
	const size = 16 << 20 // more than the kernel takes
	answers := share.New(share.Options{Most: 2*size + 1<<20, Rash: true})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(func(rc *fasthttp.RequestCtx) { rc.SetBody(bytes.Repeat([]byte("x"), size)) },
		ServerOptions{Answers: answers})
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listen(inner, nil)) }()
	ask := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		return c
	}
	unread := ask()
	require.Eventually(t, func() bool { return answers.Taken() >= size }, 30*time.Second, time.Millisecond)
	for whole := 0; whole < size; { // refused at first: the one address has its share
		c := ask()
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		whole = len(text)
		require.NoError(t, c.Close())
	}
	part, _ := io.ReadAll(unread)
	require.Less(t, len(part), size, "it was ended")
	require.NoError(t, s.Shutdown())
	require.NoError(t, <-served)
	require.Zero(t, answers.Taken())
}
