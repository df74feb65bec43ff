package ident

import (
	"encoding/binary"
	"encoding/json"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

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

// An ID that a client has seen must not tell it the next one, in whatever millisecond.
func TestIDsAreNotPredictable(t *testing.T) {
	now := int64(1000)
	g := NewGenerator(1, func() int64 { return now })
	firsts, steps := map[uint16]bool{}, map[uint16]bool{}
	last := g.Next()
	for range 100 {
		next := g.Next()
		if next.Millis() == last.Millis() {
			steps[binary.BigEndian.Uint16(next[8:])-binary.BigEndian.Uint16(last[8:])] = true
		}
		now++
		last = g.Next()
		firsts[binary.BigEndian.Uint16(last[8:])] = true
	}
	require.Greater(t, len(firsts), 90)
	require.Greater(t, len(steps), 20)
	a, b := NewGenerator(1, func() int64 { return 5 }), NewGenerator(1, func() int64 { return 5 })
	a.Seed([32]byte{1})
	b.Seed([32]byte{1})
	for range 100 {
		require.Equal(t, a.Next(), b.Next(), "a simulation repeats its IDs")
	}
}

func TestABlockIsOfOneMillisecondAndAscends(t *testing.T) {
	g := NewGenerator(1, func() int64 { return 1000 })
	last := g.Next()
	for i := range 500 {
		n := []int{1, 2, 1000, MaxBlock}[i%4]
		first := g.Block(n)
		require.Equal(t, 1, first.Compare(last))
		last = first.After(n - 1)
		require.Equal(t, first.Millis(), last.Millis())
		require.GreaterOrEqual(t, last.Compare(first), 0)
		require.Zero(t, binary.BigEndian.Uint16(last[10:]))
	}
}

func TestWhatTheBrokerMakesIsNoNameOfAClient(t *testing.T) {
	id := NewGenerator(1, func() int64 { return 1_763_658_000_123 }).Next()
	for _, made := range []string{id.String(), id.Job(7).String(), ID{}.String(),
		ForwardID(id.Job(7), 1_763_658_000_123), ForwardID(id, 0), ForwardID(id, 5) + ".2"} {
		require.True(t, Made(made), made)
		require.True(t, ValidName(made), "only the broker may give it")
	}
	for _, free := range []string{"", "order-1", strings.ToUpper(id.String()), id.String() + "0", id.String()[1:], "dead.",
		"dead." + id.String(), "dead." + id.String()[1:] + "..", "dead.x.y", "Dead." + id.String() + ".1"} {
		require.False(t, Made(free), free)
	}
	// rs/xid, of 2010, of 2026 and of its last second
	for _, other := range []string{"9m4e2mr0ui3e8a215n4g", "dc06vd9ksduag4vpvvvg", "vvvvvvr0ui3e8a215n4g"} {
		_, err := Parse(other)
		require.NoError(t, err, "it has the form of an ID")
		require.False(t, Made(other), other)
		require.False(t, Own(other), other)
	}
	require.True(t, Forwarded(ForwardID(id.Job(7), 5)))
	for _, other := range []string{id.String(), "dead.letter", "dead.", "", "x" + ForwardID(id, 5)} {
		require.False(t, Forwarded(other), other)
	}
	require.True(t, MadeRecurring("dead."+id.String()))
	require.True(t, MadeRecurring(id.String()))
	require.False(t, MadeRecurring("report"))
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
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 256), "a b", "a/b", "a%b", "é", "a\x00", "a'b", "a;b",
		"a\nb", "a?b", "a#b"} {
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

func BenchmarkNext(b *testing.B) {
	g := NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	for b.Loop() {
		g.Next()
	}
}
