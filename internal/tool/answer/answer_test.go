package answer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

// written returns what a client gets of a text.
func written(t *testing.T, text Text) []byte {
	t.Helper()
	b, err := Open(NewBound(64<<20), share.Producer(1), Small+1)
	require.NoError(t, err)
	b.text = text
	var out bytes.Buffer
	n, err := b.WriteTo(&out)
	require.NoError(t, err)
	require.EqualValues(t, out.Len(), n)
	require.Equal(t, text.Size(), out.Len(), "the length is known before")
	require.NoError(t, b.Close())
	return out.Bytes()
}

func FuzzAPayloadThatIsWrittenInPiecesIsTheSameJSON(f *testing.F) {
	f.Add("plain", 20<<10)
	f.Add("\x01", 40<<10)
	f.Add("\u00e4\"\\\n", 9<<10)
	f.Add("\U0001f600", 9<<10)
	f.Add("\xff", 30_001)
	f.Fuzz(func(t *testing.T, unit string, times int) {
		if times < 0 || times*len(unit) > 1<<20 {
			return
		}
		payload := []byte(strings.Repeat(unit, times))
		var apart Text
		whole := Text{Whole: true}
		for _, text := range []*Text{&apart, &whole} {
			text.B = append(text.B, `{"a":`...)
			text.String(payload, !utf8.Valid(payload))
			text.B = append(text.B, `,"b":`...)
			text.String([]byte("x"), true)
			text.B = append(text.B, '}')
		}
		got := written(t, apart)
		require.Equal(t, whole.B, got)
		require.Equal(t, whole.B, apart.flat())
		var back struct{ A string }
		require.NoError(t, json.Unmarshal(got, &back))
		if utf8.Valid(payload) {
			require.Equal(t, string(payload), back.A)
		} else {
			raw, err := base64.StdEncoding.DecodeString(back.A)
			require.NoError(t, err)
			require.Equal(t, payload, raw)
		}
	})
}

func TestALargePayloadIsHeldOnce(t *testing.T) {
	payload := bytes.Repeat([]byte{1}, 4<<20)
	var text Text
	text.String(payload, false)
	require.Equal(t, 6*len(payload)+2, text.Size())
	require.LessOrEqual(t, text.Held(), len(payload)+64)
	allocated := testing.AllocsPerRun(3, func() {
		b := &Body{text: text, permit: NewBound(1).Permit(share.Producer(1), nil)}
		_, err := b.WriteTo(io.Discard)
		require.NoError(t, err)
	})
	require.LessOrEqual(t, allocated, 12.0)
}

// serve answers each request with a text of that many bytes.
func serve(t *testing.T, b *share.Bound, size int) *fasthttputil.InmemoryListener {
	ln := fasthttputil.NewInmemoryListener()
	s := &fasthttp.Server{Handler: func(rc *fasthttp.RequestCtx) {
		if no := rc.QueryArgs().GetUintOrZero("producer"); no > 0 {
			SetKey(rc, share.Producer(uint32(no)))
		} else {
			SetKey(rc, share.Management(netip.MustParseAddr("10.0.0.1")))
		}
		rc.Response.Header.Set("ETag", `"e"`)
		rc.SetBody(bytes.Repeat([]byte("x"), size))
		Settle(rc, b)
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		require.NoError(t, <-done)
	})
	return ln
}

// ask sends a request and returns its connection and status, without reading the body.
func ask(t *testing.T, ln *fasthttputil.InmemoryListener, method, query string) (net.Conn, *bufio.Reader,
	*fasthttp.ResponseHeader) {
	t.Helper()
	c, err := ln.Dial()
	require.NoError(t, err)
	_, err = io.WriteString(c, method+" /?"+query+" HTTP/1.1\r\nHost: b\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	var h fasthttp.ResponseHeader
	require.NoError(t, h.Read(r))
	return c, r, &h
}

func TestLargeAnswersAreCountedUntilTheyAreWrittenAndRefusedBeyondTheShareOfTheirKey(t *testing.T) {
	const size = 1 << 20
	b := share.New(share.Options{Most: 4 * size, Reserve: 2 * size})
	ln := serve(t, b, size)
	var unread []net.Conn
	first := func(query string, want int) {
		t.Helper()
		c, _, h := ask(t, ln, "GET", query)
		unread = append(unread, c)
		require.Equal(t, want, h.StatusCode())
	}
	first("producer=1", 200)
	first("producer=1", 200)
	c, r, h := ask(t, ln, "GET", "producer=1")
	require.Equal(t, 503, h.StatusCode(), "of two it has as much as is free")
	require.Equal(t, "1", string(h.Peek("Retry-After")))
	require.Empty(t, h.Peek("ETag"))
	body := make([]byte, h.ContentLength())
	_, err := io.ReadFull(r, body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"code":"overloaded"`)
	require.NoError(t, c.Close())

	first("producer=2", 200)
	first("", 200)
	first("", 200) // from the reserve
	c, r, h = ask(t, ln, "POST", "producer=1")
	require.Equal(t, 200, h.StatusCode(), "the effect of another request stays, so its answer comes")
	_, err = io.CopyN(io.Discard, r, size)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, _, h = ask(t, ln, "HEAD", "producer=1")
	require.Equal(t, 200, h.StatusCode())

	for _, c := range unread {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return b.Taken() == 0 }, 30*time.Second, time.Millisecond, "all is given back")
}

func TestASmallAnswerIsNotCounted(t *testing.T) {
	b := NewBound(0)
	ln := serve(t, b, Small)
	for range 3 {
		_, _, h := ask(t, ln, "GET", "producer=1")
		require.Equal(t, 200, h.StatusCode())
	}
}

func TestAnAnswerThatIsDroppedOrNotModifiedHoldsNothing(t *testing.T) {
	b := NewBound(8 << 20)
	held, err := Open(b, share.Producer(1), 1<<20)
	require.NoError(t, err)
	require.Len(t, held.Buffer(100<<10), 0)
	held.Drop()
	held.Drop()
	require.Zero(t, b.Taken())
	var none *Body
	none.Drop()
	none, err = Open(b, share.Producer(1), Small)
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestAnAnswerThatWasEndedWritesNothingMore(t *testing.T) {
	held, err := Open(NewBound(8<<20), share.Producer(1), 1<<20)
	require.NoError(t, err)
	held.text = Text{B: make([]byte, 1<<20)}
	held.end()
	n, err := held.WriteTo(io.Discard)
	require.ErrorIs(t, err, errEnded)
	require.Zero(t, n)
	require.NoError(t, held.Close())
}
