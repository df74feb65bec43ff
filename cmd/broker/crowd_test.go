package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A crowd is connections that never send a whole request again.
type crowd struct {
	conns []net.Conn
	stop  chan struct{}
	drips sync.WaitGroup
}

// crowdPerAddress is how many connections of a crowd come from one address of
// the loopback network: each has about 28 000 ports.
const crowdPerAddress = 10_000

// add opens n connections and sends text on each.
func (c *crowd) add(addr string, n int, text string) error {
	for range n {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+len(c.conns)/crowdPerAddress))}
		conn, err := (&net.Dialer{LocalAddr: from, Timeout: patience}).Dial("tcp", addr)
		if err != nil {
			return err
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // their ports are free again at once
		c.conns = append(c.conns, conn)
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
	}
	return nil
}

// drip sends a byte on each of conns again and again, until close; a
// connection that the broker has ended is left alone.
func (c *crowd) drip(conns []net.Conn, every time.Duration) {
	c.drips.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-tick.C:
			}
			for _, conn := range conns {
				_, _ = conn.Write([]byte("x"))
			}
		}
	})
}

func newCrowd() *crowd { return &crowd{stop: make(chan struct{})} }

func (c *crowd) close() {
	close(c.stop)
	c.drips.Wait()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// A broker whose clients could use up all of its descriptors keeps those that
// its deliveries and stores need: every message is delivered at its first
// attempt, and when the crowd has gone everybody is served again.
func TestHostileCrowdLeavesDescriptorsToDeliveries(t *testing.T) {
	parallel(t)
	const files, messages = 256, 20
	p := embeddedWorld(t).with(envFiles+"="+strconv.Itoa(files), "BROKER_PUSH_CONCURRENCY=32").start()
	// so that many are in flight
	slow := newSink(t, func(int, received) int { time.Sleep(20 * time.Millisecond); return 204 })
	s := p.stage(t, "k="+slow.URL)
	line := p.dial()
	answers := bufio.NewReader(line)
	post := func(body string) {
		var got reply
		for range busyRepeats {
			fmt.Fprintf(line, "POST %s HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n%s\r\n%s", s.path("/broadcast"), len(body),
				rawTokens, body)
			require.NoError(t, line.SetReadDeadline(time.Now().Add(patience)))
			r, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			if got = (reply{r.StatusCode, r.Header, string(text)}); !got.busy() {
				break
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 201, got.status, "a client that was there before is served: %s", got.body)
	}
	post("before")
	c := newCrowd()
	require.NoError(t, c.add(strings.TrimPrefix(p.base, "http://"), 2*files, ""))
	require.Empty(t, readRaw(c.conns[0]), "one that sent nothing makes room for later ones")
	for i := range messages {
		post("work-" + strconv.Itoa(i))
	}
	eventually(t, "all deliveries", func() bool { return slow.count() == messages+1 })
	for _, r := range slow.all() {
		require.Equal(t, "1", r.header.Get("X-Broker-Attempt"), r.body)
	}
	c.close()
	eventually(t, "new clients to be served", func() bool {
		r, err := p.try("GET", "/readyz", "")
		return err == nil && r.status == 200
	})
}

// Clients with valid tokens that announce large bodies and send them byte by
// byte hold nothing that others need.
func TestHostileSlowBodiesKeepNobodyFromPublishing(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t)
	s.persist("before")
	c := newCrowd()
	defer c.close()
	head := "POST " + s.path("/broadcast") + " HTTP/1.1\r\nHost: b\r\n" + rawTokens
	addr := strings.TrimPrefix(p.base, "http://")
	require.NoError(t, c.add(addr, 150, head+"Content-Length: "+strconv.Itoa(4<<20)+"\r\n\r\nx"))
	require.NoError(t, c.add(addr, 150, head+"Transfer-Encoding: chunked\r\n\r\n"+strconv.FormatInt(4<<20, 16)+"\r\nx"))
	c.drip(c.conns, 100*time.Millisecond)
	for i := range 50 {
		r, err := p.try("POST", s.path("/broadcast"), "meanwhile-"+strconv.Itoa(i), producerTokens...)
		require.NoError(t, err)
		require.NotContains(t, r.body, "overloaded")
	}
	s.persist("after")
}
