package front

import (
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

const frameData = 0

// requestOf are the headers of a request to / in HPACK, with values of content-length.
func requestOf(method string, lengths ...string) string {
	text := "\x84\x86\x01\x01h\x02" + string(rune(len(method))) + method
	for _, n := range lengths {
		text += "\x00\x0econtent-length" + string(rune(len(n))) + n
	}
	return text
}

// answerOf sends frames on a connection of h2c, and returns the first byte of the headers that answer, or
// 0 if the stream was reset.
func (r *rig) answerOf(frames string) byte {
	c := r.attack(false)
	defer c.Close()
	_, err := io.WriteString(c, frameOf(frameSettings, 1, 0, "")+frames)
	require.NoError(r.t, err)
	for {
		head := make([]byte, 9)
		_, err := io.ReadFull(c, head)
		require.NoError(r.t, err)
		payload := make([]byte, binary.BigEndian.Uint32(head)>>8)
		_, err = io.ReadFull(c, payload)
		require.NoError(r.t, err)
		switch head[3] {
		case frameHeaders:
			return payload[0]
		case frameReset:
			return 0
		}
	}
}

// The statuses in HPACK.
const is200, is400 = 0x88, 0x8c

// A body that is not as long as its content-length is never taken for a whole one, by whatever method.
func TestTheLengthOfABodyIsWhatIsAnnounced(t *testing.T) {
	var whole atomic.Int32
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		stream := rc.RequestBodyStream()
		if stream == nil {
			stream = strings.NewReader("") // there is no body
		}
		length := rc.Request.Header.ContentLength()
		// As internal/tool/intake has it: that server takes the end of a connection for the end of a body.
		if n, err := io.Copy(io.Discard, stream); err == nil && (length < 0 || n == int64(length)) {
			whole.Add(1)
		}
	}, nil)
	data := func(flags byte, text string) string { return frameOf(frameData, flags, 1, text) }
	full := strings.Repeat("x", bodyPiece)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"} {
		for name, c := range map[string]struct {
			lengths []string
			data    string // "": END_STREAM is with the headers
			want    byte
		}{
			"no body":                   {nil, "", is200},
			"a body of 0":               {[]string{"0"}, "", is200},
			"a body of 0, a frame":      {[]string{"0"}, data(flagEndStream, ""), is200},
			"as long":                   {[]string{"5"}, data(0, "hello") + data(flagEndStream, ""), is200},
			"no length":                 {nil, data(flagEndStream, "hello"), is200},
			"a full piece":              {[]string{"16384"}, data(0, full) + data(flagEndStream, ""), is200},
			"empty":                     {[]string{"5"}, "", is400},
			"empty, a frame":            {[]string{"5"}, data(flagEndStream, ""), is400},
			"shorter":                   {[]string{"5"}, data(flagEndStream, "hell"), is400},
			"longer":                    {[]string{"5"}, data(flagEndStream, "hello!"), 0},
			"longer, another frame":     {[]string{"5"}, data(0, "hello") + data(flagEndStream, "!"), 0},
			"longer than a piece":       {[]string{"16384"}, data(0, full) + data(flagEndStream, "!"), 0},
			"twice":                     {[]string{"5", "5"}, data(flagEndStream, "hello"), is400},
			"twice, 0":                  {[]string{"0", "0"}, "", is400},
			"two":                       {[]string{"5", "6"}, data(flagEndStream, "hello"), is400},
			"a list":                    {[]string{"5, 5"}, data(flagEndStream, "hello"), is400},
			"a sign":                    {[]string{"+5"}, data(flagEndStream, "hello"), is400},
			"less than nothing":         {[]string{"-1"}, "", is400},
			"no number, no body":        {[]string{"zero"}, "", is400},
			"nothing":                   {[]string{""}, "", is400},
			"more than there are bytes": {[]string{"99999999999999999999"}, "", is400},
		} {
			before := whole.Load()
			flags := byte(flagEndHeaders)
			if c.data == "" {
				flags |= flagEndStream
			}
			got := r.answerOf(frameOf(frameHeaders, flags, 1, requestOf(method, c.lengths...)) + c.data)
			if c.want == is400 && got == 0 && c.data != "" {
				got = is400 // net/http has looked at a frame first
			}
			require.Equal(t, c.want, got, "%s, %s", method, name)
			want := before
			if c.want == is200 {
				want++
			}
			require.Equal(t, want, whole.Load(), "%s, %s", method, name)
		}
	}
}
