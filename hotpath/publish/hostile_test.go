package publish

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

func FuzzMessageHead(f *testing.F) {
	for _, s := range [][2]string{{"5", "text/plain"}, {"-1", "a\r\nb"}, {"1024", ""}, {"00007", "a\tb"},
		{"\u0661", "\xff"}} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, priority, contentType []byte) {
		if n, err := parsePriority(priority); err == nil {
			require.True(t, n >= 0 && n <= redisq.MaxPriority)
		} else {
			require.Equal(t, 400, problem.From(err).Status)
		}
		var c contentTypes
		text, err := c.of(contentType)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.NotEmpty(t, text)
		require.LessOrEqual(t, len(text), 255)
		require.False(t, strings.ContainsAny(text, "\r\n\x00"), "%q", text)
	})
}

// A stream is cut into the same lines however it arrives.
func FuzzLineSource(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), 1)
	f.Add(append(bytes.Repeat([]byte("x"), 70<<10), '\n', 'y'), 1000)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		s := newLineSource(&stepReader{body, max(step, 1)},
			&Publisher{bytes: share.New(share.Options{Most: 1 << 30}), maxBody: 64}, share.Producer(1))
		var got [][]byte
		long := 0
		for {
			line, err := s.next()
			if err == errLineTooLong {
				long++
				got = append(got, nil)
				continue
			}
			if err != nil {
				break
			}
			got = append(got, bytes.Clone(line))
		}
		want := bytes.Split(body, []byte{'\n'})
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		require.Len(t, got, len(want))
		for i, w := range want {
			if got[i] == nil && len(w) > s.max {
				continue
			}
			require.Equal(t, string(w), string(got[i]))
		}
		s.release()
		require.Zero(t, s.room.Taken(), "memory that is counted and not held")
	})
}

// A stepReader gives at most step bytes at a time.
type stepReader struct {
	left []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.left)
	r.left = r.left[n:]
	return n, nil
}
