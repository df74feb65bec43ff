package redisq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// parseMeta reads a meta value as it was packed, or returns an error: foreign writes to
// Redis must not result in invented attempts or leases.
func FuzzMeta(f *testing.F) {
	for _, s := range []string{"", "0|0|0||", "1023|5|3|abc.7|1730000000000", "a|b|c|d|e", "1|2|3|4", "1|2|3|4|5|6",
		"-1|-1|-1||", "99999999999999999999|0|0||", "1e3|0|0||"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseMeta(s)
		if err != nil {
			require.Zero(t, m)
			return
		}
		require.NotContains(t, m.token, "|")
		if s == "" {
			require.Zero(t, m)
		}
	})
}

// For any reply the reader does not panic, and it stops at the first item that breaks the
// contract.
func FuzzReply(f *testing.F) {
	id := string(make([]byte, ident.Size))
	f.Add("1", int64(5), id, "0|0|0||", uint8(0))
	f.Add("2", int64(1)<<52, id, "7|1|1|t.1|5", uint8(1))
	f.Add("3", int64(-1), "short", "x", uint8(2))
	f.Add("", int64(0), "", "", uint8(3))
	f.Fuzz(func(t *testing.T, state string, score int64, name, packed string, shape uint8) {
		items := []any{state, score, name, packed, nil, 1.5, []any{}}
		n := int(shape) % (len(items) + 1)
		r := &reader{items: append(append([]any{}, items[n:]...), items[:n]...)}
		for r.err == nil {
			before := r.left()
			switch shape % 3 {
			case 0:
				s := r.standing()
				require.True(t, s.State != Missing || s == Standing{State: Missing})
			case 1:
				if got := r.id(); r.err == nil {
					require.Len(t, got, ident.Size)
				}
			default:
				r.millis()
			}
			require.True(t, r.err != nil || r.left() < before)
		}
		require.Zero(t, r.left())
		require.Zero(t, r.int())
		require.Empty(t, r.text())
	})
}
