package api

import (
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A starved listener has no descriptor for the first connections.
type starved struct {
	net.Listener
	failures []error
}

func (s *starved) Accept() (net.Conn, error) {
	if len(s.failures) == 0 {
		return s.Listener.Accept()
	}
	err := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", s.failures[0])}
	s.failures = s.failures[1:]
	return nil, err
}

// Running out of descriptors is no end of the server: it serves again once
// there are some.
func TestTheServerOutlivesConnectionsThatCannotBeAccepted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(echo, ServerOptions{})
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(Listen(&starved{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
			syscall.ECONNABORTED, syscall.EPERM}}, nil))
	}()
	client := &http.Client{Timeout: 30 * time.Second}
	answer, err := client.Get("http://" + ln.Addr().String() + "/x")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "GET /x 0", string(body))
	client.CloseIdleConnections()
	require.NoError(t, s.Shutdown())
	require.NoError(t, <-done)
}

// What does say something about the listener ends the server.
func TestTheServerEndsWithItsListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	err = NewServer(echo, ServerOptions{}).Serve(Listen(&starved{ln, []error{syscall.EBADF}}, nil))
	require.ErrorIs(t, err, syscall.EBADF)
}

// A client that connects ahead and sends nothing does not hold up a stop. One whose request is
// under way gets its answer.
func TestAStopDoesNotWaitForConnectionsWithoutARequest(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := Listen(inner, nil).(*listener)
	entered, release := make(chan struct{}), make(chan struct{})
	s := NewServer(func(rc *fasthttp.RequestCtx) {
		entered <- struct{}{}
		<-release
		rc.SetStatusCode(204)
	}, ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	silent, busy := dial(), dial()
	_, err = io.WriteString(busy, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	<-entered
	remembered := func() int {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		return len(ln.silent)
	}
	require.Eventually(t, func() bool { return remembered() == 1 }, 30*time.Second, time.Millisecond,
		"the silent one, and not the other")
	gone := dial()
	require.Eventually(t, func() bool { return remembered() == 2 }, 30*time.Second, time.Millisecond)
	require.NoError(t, gone.Close())
	require.Eventually(t, func() bool { return remembered() == 1 }, 30*time.Second, time.Millisecond,
		"a client that leaves is forgotten")

	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown() }()
	_, err = silent.Read(make([]byte, 1)) // returns only when the server closes it
	require.Error(t, err)
	close(release)
	answer := make([]byte, 12)
	_, err = io.ReadFull(busy, answer)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 204", string(answer))
	require.NoError(t, <-stopped)
	require.NoError(t, <-served)
}

// A broker that stood still finds the deadline of a read over, and a request that came in time.
func TestBytesThatCameBeforeALateDeadlineAreRead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Listen(ln, nil)
	t.Cleanup(func() { _ = l.Close() })
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	c, err := l.Accept()
	require.NoError(t, err)
	send := func(text string) {
		_, err := client.Write([]byte(text))
		require.NoError(t, err)
		raw, err := c.(*clientConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Read(func(fd uintptr) bool { // wait until it is there
			n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			return n > 0
		}))
	}
	send("one")
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	buf := make([]byte, 8)
	n, err := c.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "one", string(buf[:n]))
	_, err = c.Read(buf)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "once for each deadline")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	send("two")
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	n, err = c.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "two", string(buf[:n]))
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	_, err = c.Read(buf)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nothing came")
}
