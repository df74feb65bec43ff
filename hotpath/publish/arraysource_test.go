package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

func elements(body []byte, step int) (got []string, err error) {
	s := &arraySource{lineSource: newLineSource(&stepReader{body, max(step, 1)},
		&Publisher{bytes: share.New(share.Options{Most: 1 << 30}), maxBody: 64}, share.Producer(1))}
	for {
		text, err := s.next()
		if errors.Is(err, errLineTooLong) {
			got = append(got, "too long")
			continue
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(bytes.TrimSpace(text)))
	}
}

// The source finds the elements that a JSON reader finds, however the bytes arrive.
func FuzzElementsOfAnArray(f *testing.F) {
	f.Add([]byte(`[{"a":"]}\"["}, 1 ,"x,",[[]],null]`), 1)
	f.Add([]byte(" [ ] "), 2)
	f.Add(append(append([]byte(`["`), bytes.Repeat([]byte("x"), 70<<10)...), `",1]`...), 1000)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		got, err := elements(body, step)
		var want []json.RawMessage
		if json.Unmarshal(body, &want) != nil || want == nil {
			return // the elements are checked one by one
		}
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, got, len(want))
		for i, w := range want {
			if got[i] != "too long" {
				require.Equal(t, string(w), got[i])
			}
		}
	})
}

func TestAnArrayThatBreaksOffIsRefusedOnce(t *testing.T) {
	for body, want := range map[string][]string{
		"": nil, "x": nil, "{}": nil, "[": nil, "[,": nil, "[{}": {"{}"}, "[{},": {"{}"}, "[{},]": {"{}"}, "[{}{}]": {"{}"},
		`[{"`: nil, "[]]": nil, "[] 1": nil,
		`[{}] [{}]`: {"{}"},
	} {
		for step := range len(body) + 1 {
			got, err := elements([]byte(body), step)
			require.Equal(t, errArray, err, body)
			require.Equal(t, want, got, body)
		}
	}
}
