package rawhttp_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// scripted answers every request on a connection with the next of the answers,
// written byte by byte where drip is set, and closes when they are used up.
func scripted(t *testing.T, drip bool, answers ...string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for len(answers) > 0 {
				req, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, req.Body)
				a := answers[0]
				answers = answers[1:]
				if !drip {
					_, _ = io.WriteString(c, a)
					continue
				}
				for i := range len(a) {
					_, _ = c.Write([]byte{a[i]})
				}
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

var request = rawhttp.AppendEnd(rawhttp.NewTemplate("GET", "/", "test").AppendHead(nil))

func TestAnswersAreReadInEveryFraming(t *testing.T) {
	for _, drip := range []bool{false, true} {
		addr := scripted(t, drip,
			"HTTP/1.1 201 Created\r\nLocation: /x\r\nContent-Length: 3\r\n\r\nabc",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "+
				"chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n",
			"HTTP/1.1 200\r\nConnection: close\r\n\r\nuntil the end",
		)
		c := rawhttp.New(addr, 5*time.Second)
		defer c.Close()

		res, err := c.Do(request)
		require.NoError(t, err)
		require.Equal(t, 201, res.Status)
		require.Equal(t, "abc", string(res.Body))
		require.Equal(t, "/x", string(res.Header("location")))
		require.Nil(t, res.Header("x-absent"))

		res, err = c.Do(request)
		require.NoError(t, err)
		require.Equal(t, "abc0123456789", string(res.Body))

		res, err = c.Do(request)
		require.NoError(t, err)
		require.Equal(t, 204, res.Status)
		require.Empty(t, res.Body)

		res, err = c.Do(request)
		require.NoError(t, err)
		require.Equal(t, 503, res.Status)
		require.Equal(t, 7, res.RetryAfter)

		res, err = c.Do(request)
		require.NoError(t, err)
		require.Equal(t, "until the end", string(res.Body))
	}
}

func TestABodyLargerThanTheBufferIsWhole(t *testing.T) {
	body := strings.Repeat("0123456789", 50_000)
	addr := scripted(t, false, "HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n"+body)
	c := rawhttp.New(addr, 5*time.Second)
	defer c.Close()
	res, err := c.Do(request)
	require.NoError(t, err)
	require.Equal(t, body, string(res.Body))
}

func TestALargeRequestMeetsAServerThatAnswersWhileItReads(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	const size = 32 << 20
	go func() { // echoes, so both directions are full unless somebody reads
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 33554432\r\n\r\n")
		_, _ = io.Copy(c, req.Body)
	}()
	c := rawhttp.New(ln.Addr().String(), 20*time.Second)
	defer c.Close()
	b := rawhttp.AppendLength(rawhttp.NewTemplate("POST", "/", "test").AppendHead(nil), size)
	b = append(b, bytes.Repeat([]byte("x"), size)...)
	res, err := c.Do(b)
	require.NoError(t, err)
	require.Len(t, res.Body, size)
}

func TestABrokenAnswerIsAnErrorAndTheNextRequestDialsAgain(t *testing.T) {
	for name, broken := range map[string]string{
		"not HTTP":              "SSH-2.0-x\r\n\r\n",
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"length and chunks":     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"negative length":       "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"huge length":           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
		"field without colon":   "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
		"chunk size not hex":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"chunk without its end": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := scripted(t, false, broken, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			c := rawhttp.New(addr, 2*time.Second)
			defer c.Close()
			_, err := c.Do(request)
			require.Error(t, err)
			require.NotErrorIs(t, err, rawhttp.ErrNotSent)
			res, err := c.Do(request)
			require.NoError(t, err)
			require.Equal(t, 200, res.Status)
		})
	}
}

func TestAConnectionThatEndsEarlyIsNotTakenForAnAnswer(t *testing.T) {
	addr := scripted(t, false, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
	c := rawhttp.New(addr, 2*time.Second)
	defer c.Close()
	_, err := c.Do(request)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotErrorIs(t, err, rawhttp.ErrNotSent)
}

func TestARefusedConnectionSentNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	_, err = rawhttp.New(addr, time.Second).Do(request)
	require.ErrorIs(t, err, rawhttp.ErrNotSent)
}

func TestAnAnswerThatNeverComesEndsWithTheTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, answers never
	require.NoError(t, err)
	defer ln.Close()
	start := time.Now()
	_, err = rawhttp.New(ln.Addr().String(), 50*time.Millisecond).Do(request)
	require.Error(t, err)
	require.Less(t, time.Since(start), 5*time.Second)
}
