package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

func TestAWorkerSaysItsNameAndWhatItIs(t *testing.T) {
	full := Worker{Name: "billing-3", Version: "1.8.2", Slots: 8, Tasks: []string{"a", "b"}}
	for text, want := range map[string]Worker{
		"billing-3; version=1.8.2; slots=8; tasks=a,b":             full,
		` billing-3 ;TASKS= a , b ,a,; Slots=8 ;version="1.8.2"; `: full,
		"billing-3;version=1.8.2;host=x;slots=8;tasks=a,b;":        full,
		"b":              {Name: "b"},
		"b;":             {Name: "b"},
		"Zahlung Köln 3": {Name: "Zahlung Köln 3"},
		"b; version":     {Name: "b"},
		"b; slots=0":     {Name: "b"},
		"b; version=a=b": {Name: "b", Version: "a=b"},
	} {
		got, ok := Parse(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	require.Equal(t, "billing-3;1.8.2", full.Holder())
	name, version := Held(full.Holder())
	require.Equal(t, []string{"billing-3", "1.8.2"}, []string{name, version})
}

func TestWhatCannotBeReadIsIgnored(t *testing.T) {
	for _, text := range []string{
		"", " ", ";", ";;;", "; version=1", "b; slots=many", "b; slots=-1", "b; slots=1000001", "b; slots=", "a|b",
		"b; version=a|b", "a\x00b", "a\tb", "a\x7f", "b\u0085", "\xff", "b; tasks=a|b",
		strings.Repeat("n", maxName+1), "b; version=" + strings.Repeat("v", maxVersion+1),
		"b; tasks=" + strings.Repeat("t", maxTask+1), "b" + strings.Repeat(" ", maxHeader),
	} {
		_, ok := Parse(text)
		require.False(t, ok, "%q", text)
	}
	var tasks []string
	for i := range maxTasks + 1 {
		tasks = append(tasks, fmt.Sprint(i))
	}
	_, ok := Parse("b; tasks=" + strings.Join(tasks, ","))
	require.False(t, ok)
}

func FuzzParse(f *testing.F) {
	f.Add("billing-3; version=1.8.2; slots=8; tasks=a,b")
	f.Fuzz(func(t *testing.T, text string) {
		w, ok := Parse(text)
		if !ok {
			return
		}
		require.NotEmpty(t, w.Name)
		require.NotContains(t, w.Holder(), "|")
		name, version := Held(w.Holder())
		require.Equal(t, []string{w.Name, w.Version}, []string{name, version})
		require.LessOrEqual(t, len(w.Tasks), maxTasks)
	})
}

// A hash is what Redis has of consumers.
type hash struct {
	mu     sync.Mutex
	fields map[uint32]map[string]string
	writes int
	fail   error
	leases []redisq.Lease
}

func (h *hash) KeepPresence(_ context.Context, broker string, of []redisq.Presence) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return h.fail
	}
	for _, p := range of {
		if h.fields[p.Consumer] == nil {
			h.fields[p.Consumer] = map[string]string{}
		}
		h.fields[p.Consumer][broker] = p.View
		h.writes++
	}
	return nil
}

func (h *hash) Presences(_ context.Context, consumer uint32) (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]string{}
	for broker, text := range h.fields[consumer] {
		out[broker] = text
	}
	return out, h.fail
}

func (h *hash) DropPresence(_ context.Context, consumer uint32, brokers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range brokers {
		delete(h.fields[consumer], name)
	}
	return nil
}

func (h *hash) Leases(context.Context, uint32, int) ([]redisq.Lease, []time.Time, error) {
	return h.leases, nil, nil
}

// A rig is some brokers with one Redis and one clock.
type rig struct {
	*hash
	now int64
}

func newRig() *rig {
	return &rig{hash: &hash{fields: map[uint32]map[string]string{}}, now: 1_700_000_000_000}
}

func (r *rig) broker() *Keeper {
	return New(r.hash, func() int64 { return r.now }, slog.New(slog.DiscardHandler))
}

func (r *rig) pass(d time.Duration) { r.now += d.Milliseconds() }

func (r *rig) at() time.Time { return time.UnixMilli(r.now).UTC() }

var here = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}

func TestEveryBrokerSeesTheWorkersOfAll(t *testing.T) {
	r := newRig()
	a, b := r.broker(), r.broker()
	first := r.at()
	a.Contact(7, Claim, []byte("one; version=1; slots=2; tasks=x"), here)
	a.Contact(7, Move, nil, here)
	r.pass(2 * time.Second)
	b.Contact(7, List, []byte("two"), here)
	b.Contact(7, Renewal, []byte("one; version=2"), here)
	b.Contact(8, List, []byte(";"), here)
	require.NoError(t, a.write(t.Context()))
	require.NoError(t, b.write(t.Context()))
	for _, k := range []*Keeper{a, b} {
		p, err := k.Of(t.Context(), 7)
		require.NoError(t, err)
		require.Equal(t, Presence{Claimed: first, Listed: r.at(), Moved: first, Renewed: r.at(), Workers: []Seen{
			{Worker{Name: "one", Version: "2"}, r.now, "192.0.2.7"}, {Worker{Name: "two"}, r.now, "192.0.2.7"},
		}}, p)
		p, err = k.Of(t.Context(), 8)
		require.NoError(t, err)
		require.Equal(t, r.at(), p.Listed, "what cannot be read is a contact all the same")
		require.Empty(t, p.Workers)
		p, err = k.Of(t.Context(), 9)
		require.NoError(t, err)
		require.Zero(t, p)
	}
	r.pass(Living + time.Millisecond)
	p, err := a.Of(t.Context(), 7)
	require.NoError(t, err)
	require.Empty(t, p.Workers)
	require.Equal(t, first, p.Claimed, "the times stay")
}

func TestAClaimThatWaitsIsAContactDuringTheWholeWait(t *testing.T) {
	r := newRig()
	a, b := r.broker(), r.broker()
	end := a.Contact(7, Claim, []byte("one"), here).Wait()
	for range 30 {
		r.pass(10 * time.Second)
		require.NoError(t, a.write(t.Context()))
		for _, k := range []*Keeper{a, b} {
			p, err := k.Of(t.Context(), 7)
			require.NoError(t, err)
			require.Equal(t, r.at(), p.Claimed)
			require.Len(t, p.Workers, 1)
			require.Equal(t, r.now, p.Workers[0].AtMs)
		}
	}
	end()
	last := r.at()
	r.pass(Living)
	require.Len(t, a.Local(7).Workers, 1)
	r.pass(time.Millisecond)
	require.Empty(t, a.Local(7).Workers)
	require.Equal(t, last, a.Local(7).Claimed)
}

func TestContactsAreWrittenAtMostOnceASecondForAConsumer(t *testing.T) {
	r := newRig()
	k := r.broker()
	for range 50 {
		k.Contact(7, Claim, []byte("one"), here)
		require.NoError(t, k.write(t.Context()))
		r.pass(100 * time.Millisecond)
	}
	require.Equal(t, 5, r.writes)
	r.pass(time.Minute)
	r.writes = 0
	require.NoError(t, k.write(t.Context()))
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, 1, r.writes, "the last contact")
	r.pass(time.Minute)
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, 1, r.writes, "nothing is new")
}

func TestAFailedWriteIsRepeatedAndHidesNothing(t *testing.T) {
	r := newRig()
	k := r.broker()
	k.Contact(7, Claim, []byte("one"), here)
	r.fail = errors.New("away")
	require.ErrorIs(t, k.write(t.Context()), r.fail)
	p, err := k.Of(t.Context(), 7)
	require.ErrorIs(t, err, r.fail)
	require.Len(t, p.Workers, 1)
	r.fail = nil
	r.pass(time.Second)
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, 1, r.writes)
}

func TestMemoryAndTurnsAreBounded(t *testing.T) {
	r := newRig()
	k := r.broker()
	for n := range 3 * mostWorkers {
		k.Contact(1, Claim, fmt.Appendf(nil, "worker-%d", n), here)
		r.pass(time.Millisecond)
	}
	p := k.Local(1)
	require.Len(t, p.Workers, mostWorkers)
	last := fmt.Sprintf("worker-%d", 3*mostWorkers-1)
	require.Condition(t, func() bool {
		for _, w := range p.Workers {
			if w.Name == last {
				return true
			}
		}
		return false
	})
	for n := range 2 * atOnce {
		k.Contact(uint32(n), Move, nil, here)
	}
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, atOnce, r.writes)
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, 2*atOnce, r.writes)
	r.pass(time.Minute)
	for n := range 2 * atOnce {
		k.Contact(uint32(n), Claim, nil, here).Wait()
	}
	for range 4 {
		require.NoError(t, k.write(t.Context()))
	}
	r.writes = 0
	r.pass(time.Minute)
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, beatsAtOnce, r.writes, "claims that wait cost few commands")
	k.Learn(&durable.Consumer{No: 1, State: durable.StateDeleted})
	require.Zero(t, k.Local(1))
}

func TestFieldsOfBrokersThatAreGoneAreRemoved(t *testing.T) {
	r := newRig()
	for n := range 5 {
		k := r.broker()
		k.Contact(7, Claim, nil, here)
		if n == 1 {
			k.Contact(7, Renewal, nil, here)
		}
		require.NoError(t, k.write(t.Context()))
		r.pass(time.Hour)
	}
	require.Len(t, r.fields[7], 2, "the last one, and the one with the last renewal")
	p, err := r.broker().Of(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, r.at().Add(-time.Hour), p.Claimed)
	require.Equal(t, r.at().Add(-4*time.Hour), p.Renewed)
	r.fields[7]["noise"] = "{"
	_, err = r.broker().Of(t.Context(), 7)
	require.NoError(t, err)
	require.NotContains(t, r.fields[7], "noise")
}

func TestLeasesAreCountedByWorker(t *testing.T) {
	r := newRig()
	r.leases = []redisq.Lease{{Worker: "one;1"}, {Worker: "one;2"}, {Worker: "two;"}, {}}
	got, err := r.broker().InFlight(t.Context(), 7, 8)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"one": 4, "two": 2}, got)
}

func TestANilKeeperKeepsNothing(t *testing.T) {
	var k *Keeper
	c := k.Contact(7, Claim, []byte("one"), here)
	c.Wait()()
	require.Empty(t, c.Holder())
}

func BenchmarkContact(b *testing.B) {
	k := newRig().broker()
	header := []byte("billing-3; version=1.8.2; slots=8; tasks=a,b")
	for name, h := range map[string][]byte{"unnamed": nil, "named": header} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k.Contact(7, Move, h, here)
			}
		})
	}
}

// The last claim of each consumer is told with its contacts, and once more at the end.
func TestClaimsAreToldAsTheyAreWritten(t *testing.T) {
	r := newRig()
	k := r.broker()
	type told struct {
		consumer uint32
		ms       int64
		last     bool
	}
	var got []told
	k.Claimed = func(consumer uint32, ms int64, last bool) { got = append(got, told{consumer, ms, last}) }
	k.Contact(7, Claim, nil, here)
	k.Contact(8, List, nil, here)
	first := r.now
	require.NoError(t, k.write(t.Context()))
	require.Equal(t, []told{{7, first, false}}, got)
	r.pass(time.Hour)
	k.Contact(8, Claim, nil, here)
	got = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	k.Run(ended)
	require.ElementsMatch(t, []told{{7, first, true}, {8, r.now, true}}, got)
}
