package history

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
)

// An of says of what some sums are.
type of struct {
	scope durable.HistoryScope
	no    uint32
}

// Sums are what is counted of one resource, in one slot.
type sums struct {
	accepted, delivered, failed, dead int64
	oldestMs                          int64
	acks, deliveries                  metrics.Histogram
}

func (s *sums) add(o *sums) {
	s.accepted += o.accepted
	s.delivered += o.delivered
	s.failed += o.failed
	s.dead += o.dead
	s.oldestMs = max(s.oldestMs, o.oldestMs)
	s.acks.Add(&o.acks)
	s.deliveries.Add(&o.deliveries)
}

// activity is what decides which resources have rows: first those with jobs that moved, then those whose
// jobs wait.
func (s *sums) activity() int64 { return s.accepted + s.delivered + s.failed + s.dead }

// A slot is one slot of time of one step.
type slot struct {
	step int // seconds
	atMs int64
}

// A rowKey is what a row has instead of another one.
type rowKey struct {
	slot
	of
	writer uint32
}

// compare has the order of the key of the table, in which all writers write.
func (k rowKey) compare(o rowKey) int {
	return cmp.Or(cmp.Compare(k.scope, o.scope), cmp.Compare(k.no, o.no), cmp.Compare(k.step, o.step),
		cmp.Compare(k.atMs, o.atMs), cmp.Compare(k.writer, o.writer))
}

// A tally has the present slot of each step, and the rows that are not written yet. It is used by one
// goroutine.
type tally struct {
	most    int // resources of each scope that have rows in a slot
	waiting int // rows that may wait

	writer uint32
	lastMs int64 // begin of the last slot of ten seconds
	open   map[slot]map[of]*sums
	rows   map[rowKey]durable.HistoryRow
}

func newTally(most, waiting int) *tally {
	t := &tally{most: most, waiting: waiting, rows: map[rowKey]durable.HistoryRow{}}
	t.begin()
	return t
}

// begin makes the tally another writer, with rows of its own.
func (t *tally) begin() {
	t.writer, t.open = 1+rand.Uint32N(math.MaxUint32), map[slot]map[of]*sums{}
}

// add adds what was counted in a slot of ten seconds. It returns of how many resources it was too much, so
// they have no rows, and how many rows that waited were given up.
func (t *tally) add(atMs int64, counted map[of]*sums) (omitted, lost int) {
	if atMs < t.lastMs { // a slot that is no longer open: its rows must not be written with less in them
		t.begin()
	}
	t.lastMs = atMs
	most := t.mostActive(counted)
	omitted = len(counted) - len(most)
	for i, step := range Steps {
		s := slot{step.seconds(), step.Begin(atMs)}
		for old := range t.open {
			if old.step == s.step && old.atMs != s.atMs {
				delete(t.open, old)
			}
		}
		n := t.addTo(s, most, counted)
		if i > 0 {
			omitted += n
		}
	}
	return omitted, t.shorten()
}

// addTo adds to one slot, and returns how many resources found no place in it.
func (t *tally) addTo(s slot, most []of, counted map[of]*sums) (omitted int) {
	if len(most) == 0 {
		return 0
	}
	in := t.open[s]
	if in == nil {
		in = map[of]*sums{}
		t.open[s] = in
	}
	var places [3]int
	for o := range in {
		places[o.scope]++
	}
	for _, o := range most {
		have := in[o]
		if have == nil {
			if places[o.scope] >= t.most {
				omitted++
				continue
			}
			places[o.scope]++
			have = &sums{}
			in[o] = have
		}
		have.add(counted[o])
		t.rows[rowKey{s, o, t.writer}] = row(s, o, t.writer, have)
	}
	return omitted
}

func row(s slot, o of, writer uint32, have *sums) durable.HistoryRow {
	return durable.HistoryRow{Scope: o.scope, No: o.no, Step: s.step, AtMs: s.atMs, Writer: writer,
		Accepted: have.accepted, Delivered: have.delivered, Failed: have.failed, Dead: have.dead,
		OldestMs: have.oldestMs, Acks: encode(&have.acks), Deliveries: encode(&have.deliveries)}
}

// mostActive returns which resources have rows: those with most activity, and then those with the oldest
// job. The order is the same for the same counts.
func (t *tally) mostActive(counted map[of]*sums) (out []of) {
	var scopes [3][]of
	for o := range counted {
		scopes[o.scope] = append(scopes[o.scope], o)
	}
	for _, all := range scopes {
		slices.SortFunc(all, func(a, b of) int {
			x, y := counted[a], counted[b]
			return cmp.Or(cmp.Compare(y.activity(), x.activity()), cmp.Compare(y.oldestMs, x.oldestMs), cmp.Compare(a.no, b.no))
		})
		out = append(out, all[:min(len(all), t.most)]...)
	}
	return out
}

// shorten gives up rows where too many wait: the finest ones first, of these the oldest ones.
func (t *tally) shorten() (lost int) {
	if len(t.rows) <= t.waiting {
		return 0
	}
	keys := t.keys(func(a, b rowKey) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.atMs, b.atMs), a.compare(b))
	})
	for _, k := range keys[:len(keys)-t.waiting] {
		delete(t.rows, k)
		lost++
	}
	return lost
}

// expire gives up the rows of slots that were over at a time: others may have merged them.
func (t *tally) expire(beforeMs int64) (lost int) {
	for k := range t.rows {
		if k.atMs+int64(k.step)*1000 < beforeMs {
			delete(t.rows, k)
			lost++
		}
	}
	return lost
}

func (t *tally) keys(order func(a, b rowKey) int) []rowKey {
	keys := make([]rowKey, 0, len(t.rows))
	for k := range t.rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, order)
	return keys
}

// waits returns the keys of the rows that wait, in the order in which they are written.
func (t *tally) waits() []rowKey { return t.keys(rowKey.compare) }

// of returns rows by their keys.
func (t *tally) of(keys []rowKey) []durable.HistoryRow {
	rows := make([]durable.HistoryRow, len(keys))
	for i, k := range keys {
		rows[i] = t.rows[k]
	}
	return rows
}

// written drops rows that are stored.
func (t *tally) written(keys []rowKey) {
	for _, k := range keys {
		delete(t.rows, k)
	}
}
