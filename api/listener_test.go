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
		done <- s.Serve(Listen(&starved{ln, []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM}}))
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
	err = NewServer(echo, ServerOptions{}).Serve(Listen(&starved{ln, []error{syscall.EBADF}}))
	require.ErrorIs(t, err, syscall.EBADF)
}
