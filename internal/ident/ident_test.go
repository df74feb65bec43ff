package ident

import (
	"encoding/json"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextIsTheInverseOfParse(t *testing.T) {
	g := NewGenerator(7, func() int64 { return 1_763_658_000_123 })
	for range 1000 {
		id := g.Next()
		back, err := Parse(id.String())
		require.NoError(t, err)
		require.Equal(t, id, back)
		require.Len(t, id.String(), TextSize)
		require.Equal(t, int64(1_763_658_000_123), id.Millis())
		require.Equal(t, id.String(), string(id.AppendText(nil)))
	}
}

func TestTextSortsLikeBytes(t *testing.T) {
	ms := int64(1)
	g := NewGenerator(9, func() int64 { ms = ms*3 + 1; return ms % (1 << 47) })
	var texts []string
	last := ID{}
	for range 200 {
		id := g.Next()
		require.Equal(t, 1, id.Compare(last))
		require.Equal(t, -1, last.Compare(id))
		last = id
		texts = append(texts, id.String())
	}
	require.True(t, sort.StringsAreSorted(texts))
}

func TestJobIDsLeadBackToTheirMessage(t *testing.T) {
	m := NewGenerator(1, func() int64 { return 42 }).Next()
	for _, pos := range []int{0, 1, 255, 256, MaxPositions - 1} {
		job := m.Job(pos)
		require.Equal(t, 1, job.Compare(m))
		back, p, ok := job.Split()
		require.True(t, ok)
		require.Equal(t, m, back)
		require.Equal(t, pos, p)
	}
	_, _, ok := m.Split()
	require.False(t, ok, "a message ID is no job ID")
}

func TestGeneratorAscendsWhenItsClockStepsBackOrStandsStill(t *testing.T) {
	now := int64(1000)
	g := NewGenerator(1, func() int64 { return now })
	last := g.Next()
	for i := range 200_000 { // past 65 536 in one millisecond
		if i == 10 {
			now = 500
		}
		id := g.Next()
		require.Equal(t, 1, id.Compare(last))
		last = id
	}
}

func TestGeneratorIsUniqueUnderConcurrency(t *testing.T) {
	g := NewGenerator(1, func() int64 { return 1000 })
	var mu sync.Mutex
	seen := map[ID]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				id := g.Next()
				mu.Lock()
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, 40_000)
}

func TestNextCarries(t *testing.T) {
	require.Equal(t, ID{11: 1}, ID{}.Next())
	require.Equal(t, ID{10: 1}, ID{11: 0xff}.Next())
	require.Equal(t, AtMillis(6), func() ID {
		id := AtMillis(5)
		for i := 6; i < Size; i++ {
			id[i] = 0xff
		}
		return id.Next()
	}())
}

func TestNamesAreOneToTwoHundredAndFiftyFiveSafeBytes(t *testing.T) {
	for _, name := range []string{"a", "A-z_0.9~:@", "...", strings.Repeat("x", 255)} {
		require.True(t, ValidName(name), name)
	}
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 256), "a b", "a/b", "a%b", "é", "a\x00", "a'b", "a;b", "a\nb", "a?b", "a#b"} {
		require.False(t, ValidName(name), "%q", name)
	}
}

func TestLogsAndJSONShowTheText(t *testing.T) {
	id := AtMillis(1_763_658_000_123)
	b, err := json.Marshal(map[string]ID{"id": id})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"`+id.String()+`"}`, string(b))
}

func FuzzParse(f *testing.F) {
	f.Add("00000000000000000000")
	f.Add("vvvvvvvvvvvvvvvvvvvg")
	f.Add("VVVVVVVVVVVVVVVVVVVV")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, s, id.String())
	})
}
