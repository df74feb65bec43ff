package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for an event before it calls it missing.
const patience = 60 * time.Second

// newEcho returns a proxy in front of a server that answers each line with itself,
// and hears of each line.
func newEcho(t *testing.T) (*Proxy, <-chan string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	heard := make(chan string, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					heard <- lines.Text()
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	p, err := Start(ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()); require.NoError(t, ln.Close()) })
	return p, heard
}

func dial(t *testing.T, p *Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

func ask(t *testing.T, c net.Conn, text string) {
	t.Helper()
	fmt.Fprintln(c, text)
	answer, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, text+"\n", answer)
}

func requireBroken(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.ReadAll(c)
	require.ErrorContains(t, err, "reset")
}

func TestALinkForwardsAndCanBeCut(t *testing.T) {
	p, _ := newEcho(t)
	c := dial(t, p)
	ask(t, c, "one")
	ask(t, c, "two")
	p.Cut()
	requireBroken(t, c)
	ask(t, dial(t, p), "three")
}

func TestATurnedProxyLeadsElsewhereAndBreaksWhatIsOpen(t *testing.T) {
	p, first := newEcho(t)
	other, second := newEcho(t)
	c := dial(t, p)
	ask(t, c, "one")
	require.Equal(t, "one", <-first)
	p.Turn(other.Addr())
	requireBroken(t, c)
	ask(t, dial(t, p), "two")
	require.Equal(t, "two", <-second)
	require.Empty(t, first)
}

func TestALinkCanRefuseLoseAndHoldBack(t *testing.T) {
	p, heard := newEcho(t)
	t.Run("refuse", func(t *testing.T) {
		p.Set(Weather{Refuse: true})
		defer p.Set(Weather{})
		c, err := net.Dial("tcp", p.Addr())
		if err == nil { // else the reset was quick
			requireBroken(t, c)
			require.NoError(t, c.Close())
		}
	})
	t.Run("lose answers", func(t *testing.T) {
		c := dial(t, p)
		ask(t, c, "kept")
		require.Equal(t, "kept", <-heard)
		p.Set(Weather{LoseAnswers: true})
		fmt.Fprintln(c, "answered in vain")
		require.Equal(t, "answered in vain", <-heard, "the server has done it")
		requireBroken(t, c)
		p.Set(Weather{})
	})
	t.Run("hold answers back", func(t *testing.T) {
		c := dial(t, p)
		p.Set(Weather{StallDown: true})
		fmt.Fprintln(c, "patience")
		require.Equal(t, "patience", <-heard)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		require.ErrorContains(t, err, "timeout")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		p.Set(Weather{})
		answer, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "patience\n", answer)
	})
	t.Run("hold requests back", func(t *testing.T) {
		c := dial(t, p)
		p.Set(Weather{StallUp: true})
		fmt.Fprintln(c, "later")
		select {
		case text := <-heard:
			t.Fatalf("the server got %q", text)
		case <-time.After(50 * time.Millisecond):
		}
		p.Set(Weather{})
		require.Equal(t, "later", <-heard)
	})
	t.Run("delay", func(t *testing.T) {
		p.Set(Weather{Delay: 30 * time.Millisecond})
		start := time.Now()
		ask(t, dial(t, p), "slow")
		require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
		p.Set(Weather{})
	})
}

func TestAClientThatEndsItsStreamStillGetsTheAnswer(t *testing.T) {
	p, _ := newEcho(t)
	c := dial(t, p)
	fmt.Fprintln(c, "last words")
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "last words\n", string(answer))
}
