package simulation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/standby"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A journaling is how the brokers of a plan have journals.
type journaling struct {
	on          bool
	shared      bool          // all brokers have one data folder
	budget      time.Duration // for the store, before the journal takes a message
	bytes       int64         // that a journal takes
	age         time.Duration // of its oldest message
	crash, fail int           // at a call of the disk, per thousand
	flips       int           // at the end of a life, per thousand: a byte of a file is another one
	pauses      bool          // channels are paused and resumed
}

// newJournaling draws how brokers have journals, and troubles for them. It is a draw of its own: the
// rest of the plan stays.
func newJournaling(seed uint64, p *plan) (j journaling) {
	c := draw(seed, word("journal"))
	if j.on = c.hit(250); !j.on {
		return j
	}
	j.shared = c.hit(200)
	j.budget = c.between(time.Millisecond, 80*time.Millisecond)
	j.bytes = []int64{1 << 20, 1 << 20, 1 << 20, 700, 1500}[c.below(5)]
	j.age = []time.Duration{time.Hour, time.Hour, 700 * time.Millisecond}[c.below(3)]
	if p.calm {
		return j
	}
	j.crash, j.fail = []int{0, 30, 150}[c.below(3)], []int{0, 0, 60}[c.below(3)]
	for range c.below(4) {
		p.events = append(p.events, trouble{at: c.between(0, p.active), kind: storeAway, span: c.between(200*time.Millisecond,
			5*time.Second)})
	}
	for range c.below(3) {
		p.events = append(p.events, trouble{at: c.between(0, p.active), kind: diskFull, span: c.between(200*time.Millisecond,
			3*time.Second)})
	}
	for range c.below(2) {
		p.events = append(p.events, trouble{at: c.between(0, p.active), kind: vacate, slot: c.below(p.brokers)})
	}
	j.flips, j.pauses = []int{0, 0, 400}[c.below(3)], c.hit(400)
	return j
}

// takeIn makes channels take messages into journals: all, or one of two.
func (w *world) takeIn() {
	for i, no := range w.channels {
		r := draw(w.seed, word("intake"), uint64(no))
		if !w.plan.journal.on || i > 0 && r.hit(500) {
			continue
		}
		record, err := policy.MergeIntake("", map[string]string{"ack": "journal",
			"latencyBudget": w.plan.journal.budget.String()})
		if err != nil {
			panic(err) // a duration within its bounds
		}
		w.store.setIntake(no, record)
	}
}

// folder is the data folder of the brokers of a slot.
func (w *world) folder(slot int) string {
	if w.plan.journal.shared {
		slot = 0
	}
	return filepath.Join(w.folders, fmt.Sprint(slot))
}

// sign signs a receipt.
func sign(part []byte) (sum [4]byte) {
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE(part))
	return sum
}

func (l *life) journalOptions() journal.Options {
	p := l.w.plan.journal
	return journal.Options{MaxBytes: p.bytes, MaxAge: p.age, Sign: sign, Log: silent, Files: lifeFiles{l, l.w.disk}}
}

// journals are those of the data folder of the life.
func (l *life) journals() standby.Journals {
	if !l.w.plan.journal.on {
		return standby.Journals{}
	}
	o, data := l.journalOptions(), l.w.folder(l.slot)
	return standby.Journals{
		Sign: sign,
		Open: func() (*journal.Journal, error) {
			j, err := journal.Open(data, o)
			if err == nil {
				l.locked(j)
			}
			return j, err
		},
		Left: func() ([]*journal.Journal, error) {
			left, _, err := journal.Left(data, o)
			l.locked(left...)
			return left, err
		},
	}
}

// locked remembers journals whose locks the life has, and ends those locks if it is over already.
func (l *life) locked(all ...*journal.Journal) {
	l.mu.Lock()
	l.opened = append(l.opened, all...)
	over := l.crashed
	l.mu.Unlock()
	if over {
		l.unlock()
	}
}

// unlock ends the locks of a life that is over, as the system does at the end of a process.
func (l *life) unlock() {
	l.mu.Lock()
	opened := l.opened
	l.mu.Unlock()
	for _, j := range opened {
		_ = j.Close()
	}
}

// vacate ends a broker whose slot stays empty. Somebody replays its journals later.
func (w *world) vacate(slot int) {
	w.mu.Lock()
	b, again := w.brokers[slot], w.vacant[slot]
	if !again && b != nil {
		w.vacant[slot] = true
	}
	w.mu.Unlock()
	if again || b == nil {
		return
	}
	b.life.crash("for good")
	w.acting.Go(func() { w.rescue(slot) })
}

func (w *world) vacated(slot int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vacant[slot]
}

// rescue replays the journals of a slot that has no broker any more, as broker journal replay does,
// and begins again where that fails or is killed. In a shared folder the other brokers do that.
func (w *world) rescue(slot int) {
	if w.plan.journal.shared || !w.plan.journal.on {
		return
	}
	r := draw(w.seed, word("rescue"), uint64(slot))
	time.Sleep(r.between(10*time.Millisecond, w.plan.active))
	for began := w.now(); ; {
		w.mu.Lock()
		w.lives++
		l := newLife(w, w.lives, slot)
		w.mu.Unlock()
		err := l.replayJournals()
		l.note("journals replayed", 0, none, fmt.Sprint(err))
		if err == nil {
			return
		}
		if !w.faulty() && w.now()-began > w.plan.active+bound {
			w.checker.report(none, "I21: the journals of slot %d cannot be replayed: %v", slot, err)
			return
		}
		time.Sleep(r.between(10*time.Millisecond, time.Second))
	}
}

// replayJournals is the life of a broker journal replay, wired as cmd/broker wires it.
func (l *life) replayJournals() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := storeSeam{l, l.w.store}
	cat := catalogue.New(store, silent)
	if err := cat.Refresh(ctx); err != nil {
		return err
	}
	node, err := cluster.New(ctx, store, fmt.Sprintf("replay %d", l.no)+cluster.NoFailSafe, silent)
	if err != nil {
		return err
	}
	l.seed(node)
	bodies, counts := share.New(share.Options{Most: 1 << 20}), metrics.New(prometheus.NewRegistry())
	submitter := accept.New(accept.Options{
		Store: store, Catalogue: cat, Node: node, Admission: accept.NewAdmission(64),
		Committed: func([]*durable.Message) {}, Bodies: bodies, Metrics: counts, Log: silent,
	})
	replayer := standby.New(standby.Options{Submitter: submitter, Receipts: store, Catalogue: cat, Node: node,
		Bodies: bodies, Journals: l.journals(), Metrics: counts, Log: silent})
	left, busy, err := journal.Left(l.w.folder(l.slot), l.journalOptions())
	if busy { // by the one that is gone, for a moment
		err = errors.Join(err, journal.ErrInUse)
	}
	var keepers sync.WaitGroup
	keepers.Go(func() { _ = node.Run(ctx) })
	keepers.Go(func() { _ = cat.Run(ctx) })
	keepers.Go(func() {
		select {
		case <-l.over:
			cancel()
		case <-ctx.Done():
		}
	})
	for _, j := range left {
		if err == nil {
			_, err = replayer.Drain(ctx, j)
		}
		_ = j.Close()
	}
	if l.dead() {
		err = errDeadOwner
	}
	cancel()
	keepers.Wait()
	_ = node.Release(context.Background())
	return err
}

// journalled checks an answer of 202: the message is stored, and the receipt leads to it. Where the
// disk returned other bytes, the receipt says so (I21).
func (w *world) journalled(p *post, t try, m *durable.Message) {
	if w.saidLost(t.id) { // the committer may have stored it all the same
		return
	}
	if m == nil {
		w.checker.report(none, "I21: %q was answered %d and is not stored", p.payload, t.status)
		return
	}
	id, ok := journal.ParseReceipt(t.id, sign)
	r, known := w.store.receipt(durable.ReceiptID(id))
	if !ok || !known || r.Message != m.PathID() {
		w.checker.report(m.ID, "I21: the receipt %q of %q leads to %q: valid %t, known %t %s", t.id, p.payload, r.Message, ok,
			known, r.Reason)
	}
	for _, earlier := range p.tries { // whose answer was lost, it may have been stored by
		if earlier.unknown() {
			t.sent = min(t.sent, earlier.sent)
		}
	}
	w.reached(p, t, m)
}

// saidLost reports whether a receipt says that its message is lost, in a world whose disk loses some.
func (w *world) saidLost(text string) bool {
	r, ok := journal.ParseReceipt(text, sign)
	for _, id := range []durable.ReceiptID{durable.ReceiptID(r), durable.ReceiptID(r.Place())} {
		got, known := w.store.receipt(id)
		if ok && known && got.Reason == "lost" {
			return w.plan.journal.flips > 0
		}
	}
	return false
}

// pause is people who pause channels and resume them, while messages of them wait in journals. After
// the last fault all are resumed.
func (w *world) pause() {
	r := draw(w.seed, word("pause"))
	for w.plan.journal.pauses && w.faulty() {
		time.Sleep(r.between(20*time.Millisecond, 900*time.Millisecond))
		w.store.pauseChannel(w.channels[r.below(len(w.channels))], r.hit(400))
	}
	for _, no := range w.channels {
		w.store.pauseChannel(no, false)
	}
}

// checkTurns checks that messages of a producer with one ordering key are stored in the order in
// which they were answered, where they went through one slot (I22). Brokers that share a data
// folder are left out: each may have the journal of the other.
func (w *world) checkTurns(stored map[string]*durable.Message) {
	if !w.plan.journal.on || w.plan.journal.shared || w.plan.retention > 0 {
		return
	}
	last := map[string]*post{}
	for _, p := range w.published {
		if p.ordering == "" || stored[p.payload] == nil {
			continue
		}
		key := fmt.Sprint(p.channel, p.producer, p.ordering)
		before := last[key]
		last[key] = p
		if before == nil || !before.answered() || !p.through(before) {
			continue
		}
		first, second := stored[before.payload], stored[p.payload]
		if !w.store.follows(second, first.ID) {
			w.checker.report(second.ID, "I22: %q is stored before %q, which was answered before", p.payload, before.payload)
		}
	}
}

// answered reports whether a producer was told that its message is stored or in a journal.
func (p *post) answered() bool {
	t := p.tries[len(p.tries)-1]
	return t.stored() || t.taken()
}

// through reports whether all tries of two posts that came to a broker came to one slot.
func (p *post) through(other *post) bool {
	slot := -1
	for _, t := range append(append([]try(nil), p.tries...), other.tries...) {
		if t.came && slot >= 0 && t.slot != slot {
			return false
		}
		if t.came {
			slot = t.slot
		}
	}
	return true
}

// follows reports whether a message comes after another one of its ordering key.
func (s *store) follows(m *durable.Message, earlier ident.ID) bool {
	for id := m.ID; id != none; {
		if id = s.before(m.ChannelNo, id); id == earlier {
			return true
		}
	}
	return false
}
