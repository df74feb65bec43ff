package simulation

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A store is what is on disk: durable.Store without SQL. Its methods take effect
// at one moment and never fail; storeSeam is how a broker reaches it.
type store struct {
	storeClock

	mu         sync.Mutex
	version    int64
	producers  []durable.Producer
	channels   []durable.Channel
	consumers  []durable.Consumer
	nodes      []durable.Node
	messages   map[uint32][]*durable.Message // by channel, in order of ID
	keys       map[channelKey]ident.ID
	chains     map[channelKey]ident.ID // last message of each ordering key
	links      map[messageKey]ident.ID // the message before in the key, of messages with a key
	deliveries map[jobKey]durable.Outcome
	open       map[jobKey]durable.Outcome
	dead       map[jobKey]durable.Outcome
	redriven   map[jobKey]int64               // of open jobs
	counted    map[jobKey]counts              // of open jobs
	ended      map[jobKey]counts              // of dead jobs
	lost       map[jobKey]map[attemptKey]bool // every lease that ended without a word, those before a redrive too
	events     int64                          // the order of what follows
	died       map[jobKey]int64               // when the row of a dead job was stored, in events
	redrivings map[redriveKey]*storedRedrive
	attempts   map[attemptKey]bool
	marks      map[uint32]ident.ID
	failures   map[uint32][]int64 // Unix ms of the last failures that count for a tombstone
	holds      map[uint32]durable.Hold
	probes     map[uint32]int64   // Unix ms until which a broker may probe the consumer
	purged     []*durable.Message // that were there
	schedules  map[ident.ID]*durable.Scheduled
	exchanges  map[jobKey]*durable.Exchange
	replays    map[uint32]*storedReplay
	bulks      map[ident.ID]*storedBulk
	receipts   map[durable.ReceiptID]durable.Receipt
	tokens     uint64 // of node leases handed out
	flaw       flaw
}

type channelKey struct {
	channel uint32
	key     string
}

// A jobKey is a job: a message for one consumer.
type jobKey struct {
	consumer uint32
	id       ident.ID
}

type attemptKey struct {
	jobKey
	atMs    int64
	attempt int
}

func newStore(clock func() time.Time) *store {
	return &store{
		storeClock: storeClock{server: clock}, messages: map[uint32][]*durable.Message{}, keys: map[channelKey]ident.ID{},
		chains: map[channelKey]ident.ID{}, links: map[messageKey]ident.ID{},
		deliveries: map[jobKey]durable.Outcome{}, open: map[jobKey]durable.Outcome{}, dead: map[jobKey]durable.Outcome{},
		redriven: map[jobKey]int64{}, counted: map[jobKey]counts{}, ended: map[jobKey]counts{},
		lost: map[jobKey]map[attemptKey]bool{}, died: map[jobKey]int64{},
		redrivings: map[redriveKey]*storedRedrive{},
		exchanges:  map[jobKey]*durable.Exchange{}, replays: map[uint32]*storedReplay{}, bulks: map[ident.ID]*storedBulk{},
		receipts: map[durable.ReceiptID]durable.Receipt{},
		attempts: map[attemptKey]bool{}, marks: map[uint32]ident.ID{}, schedules: map[ident.ID]*durable.Scheduled{},
		failures: map[uint32][]int64{}, probes: map[uint32]int64{}, holds: map[uint32]durable.Hold{},
	}
}

// message returns a stored message or nil. Call it with mu held.
func (s *store) message(channel uint32, id ident.ID) *durable.Message {
	all := s.messages[channel]
	if i, found := slices.BinarySearchFunc(all, id, byID); found {
		return all[i]
	}
	return nil
}

func byID(m *durable.Message, id ident.ID) int { return m.ID.Compare(id) }

// insert stores a batch as durable.Store.Insert does, one result per message.
func (s *store) insert(node durable.NodeLease, batch []durable.Message) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.insertHere(node, batch)
}

// insertHere is insert with mu held.
func (s *store) insertHere(node durable.NodeLease, batch []durable.Message) []error {
	errs := make([]error, len(batch))
	first := map[channelKey]int{}
	var fresh []int
	stale := false
	for i := range batch {
		m := &batch[i]
		key := channelKey{m.ChannelNo, m.Key}
		original, known := s.keys[key]
		earlier, repeated := first[key]
		stored := s.message(m.ChannelNo, m.ID)
		switch {
		case m.Key != "" && repeated:
			errs[i] = takenBy(&batch[earlier], m)
			continue
		case stored != nil && sameMessage(stored, m):
		case s.reserved(m):
			errs[i] = durable.ErrConflict
			continue
		case m.Key != "" && known && s.flaw != keysAreForgotten:
			errs[i] = takenBy(s.message(m.ChannelNo, original), m)
		case stored != nil:
			errs[i] = durable.ErrStale
		default:
			fresh = append(fresh, i)
		}
		// Only who has a key is known before the guard is asked.
		stale = stale || (m.Key == "" || stored == nil && !known) && !s.guard(node, m)
		first[key] = i
	}
	slices.SortFunc(fresh, func(a, b int) int { return batch[a].ID.Compare(batch[b].ID) })
	for _, i := range fresh {
		if stale && s.flaw != guardIsOff {
			errs[i] = durable.ErrStale
			continue
		}
		s.put(batch[i])
	}
	for i := range batch { // repeats of a key share the fate of the one they repeat
		m := &batch[i]
		key := channelKey{m.ChannelNo, m.Key}
		j, ok := first[key]
		if !ok || j == i || m.Key == "" || errs[j] == nil {
			continue
		}
		errs[i] = errs[j]
		if errors.Is(errs[j], durable.ErrDuplicate) || errors.Is(errs[j], durable.ErrConflict) {
			errs[i] = takenBy(s.message(m.ChannelNo, s.keys[key]), m)
		}
	}
	return errs
}

// takenBy is the answer to a message whose key a stored one has.
func takenBy(original, m *durable.Message) error {
	switch repeats := repeatsMessage(original, m); {
	case repeats && original.ID == m.ID:
		return nil
	case repeats:
		return &durable.DuplicateError{ID: original.ID}
	case original.ID == m.ID:
		return durable.ErrStale
	}
	return durable.ErrConflict
}

func sameMessage(a, b *durable.Message) bool {
	return a.ProducerNo == b.ProducerNo && a.Priority == b.Priority && a.Key == b.Key && a.ContentType == b.ContentType &&
		sameHeaders(a, b) && string(a.Payload) == string(b.Payload)
}

// repeatsMessage reports whether m is a repeat of a stored message: with the same terms, too, of which
// the ordering key is a header.
func repeatsMessage(stored, m *durable.Message) bool {
	return sameMessage(stored, m) && stored.TTLMs == m.TTLMs && stored.Addressed == m.Addressed
}

// sameHeaders compares names without regard to case, in any order.
func sameHeaders(a, b *durable.Message) bool {
	count := map[string]int{}
	for _, m := range []*durable.Message{a, b} {
		for line := range strings.Lines(string(m.Headers)) {
			name, value, _ := strings.Cut(line, ":")
			if name = strings.ToLower(name); name == "traceparent" || name == "tracestate" {
				continue
			}
			if m == a {
				count[strings.ToLower(name)+":"+value]++
			} else {
				count[strings.ToLower(name)+":"+value]--
			}
		}
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// guard is the condition inside the INSERT: audience, node lease, age of the ID.
func (s *store) guard(node durable.NodeLease, m *durable.Message) bool {
	now := s.nowMs()
	return s.alive(node, m.ChannelNo) && s.channels[m.ChannelNo-1].Audience == m.Audience &&
		s.nodes[node.No].Expires.UnixMilli() > now &&
		m.ID.Millis()+durable.MaxIDAge.Milliseconds() >= now
}

// alive is the part of the guard that a schedule has: the node's token, and a channel that accepts.
func (s *store) alive(node durable.NodeLease, channel uint32) bool {
	if int(node.No) >= len(s.nodes) || int(channel) > len(s.channels) {
		return false
	}
	return !s.channels[channel-1].Paused && s.nodes[node.No].Token == node.Token
}

func (s *store) put(m durable.Message) {
	if s.flaw == commitIsForgotten && s.flaw.strikes(m.ID) {
		return
	}
	all := s.messages[m.ChannelNo]
	i, _ := slices.BinarySearchFunc(all, m.ID, byID)
	s.messages[m.ChannelNo] = slices.Insert(all, i, &m)
	if m.Key != "" && !s.isForgotten(&m) {
		s.keys[channelKey{m.ChannelNo, m.Key}] = m.ID
	}
	s.chain(&m)
}

// record stores outcomes as durable.Store.Record does.
func (s *store) record(outcomes []durable.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sorted := slices.Clone(outcomes)
	slices.SortStableFunc(sorted, func(a, b durable.Outcome) int {
		return cmp.Or(cmp.Compare(a.ConsumerNo, b.ConsumerNo), a.ID.Compare(b.ID), cmp.Compare(a.Attempts, b.Attempts))
	})
	known := map[attemptKey]bool{} // before this batch
	for _, o := range sorted {
		if k := attemptOf(o); s.attempts[k] {
			known[k] = true
		}
	}
	for _, kind := range []durable.OutcomeKind{durable.OutcomeRetry, durable.OutcomeGivenBack, durable.OutcomeDead,
		durable.OutcomeDelivered} {
		for _, o := range sorted {
			if o.Kind == kind && !known[attemptOf(o)] {
				s.recordOne(o)
			}
		}
	}
}

func attemptOf(o durable.Outcome) attemptKey {
	if o.Kind == durable.OutcomeDelivered {
		return attemptKey{} // has no row of attempts
	}
	switch {
	case o.Kind == durable.OutcomeGivenBack:
		o.Attempts++ // the number under which the worker had it
	case o.Kind == durable.OutcomeDead && !o.Reason.Attempted():
		o.Attempts = 0 // it ends the job at the time of an attempt, perhaps
	}
	return attemptKey{jobKey{o.ConsumerNo, o.ID}, o.AtMs, o.Attempts}
}

func (s *store) recordOne(o durable.Outcome) {
	k := jobKey{o.ConsumerNo, o.ID}
	if lostBy(o) > 0 {
		if s.lost[k] == nil {
			s.lost[k] = map[attemptKey]bool{}
		}
		s.lost[k][attemptOf(o)] = true
	}
	s.countFailure(o)
	switch o.Kind {
	case durable.OutcomeRetry:
		s.attempts[attemptOf(o)] = true
		if old, ok := s.open[k]; !ok || o.Attempts > old.Attempts {
			s.reopenAs(k, o)
			s.count(k, counts{lost: lostBy(o)})
		}
	case durable.OutcomeGivenBack:
		s.attempts[attemptOf(o)] = true
		o.StatusCode, o.Error = 0, ""
		old, ok := s.open[k]
		if ok && o.Attempts < old.Attempts {
			return
		}
		if ok {
			o.StatusCode, o.Error = old.StatusCode, old.Error
		}
		s.reopenAs(k, o)
		s.count(k, counts{givenBack: 1})
	case durable.OutcomeDead:
		if s.flaw == purgeIsForgotten && o.Reason == durable.QueuePurged && s.flaw.strikes(o.ID) {
			return
		}
		s.attempts[attemptOf(o)] = true
		if _, ok := s.dead[k]; !ok {
			s.dead[k] = o
			s.events++
			s.died[k] = s.events
			s.ended[k] = counts{}
			if _, ok := s.open[k]; ok {
				s.ended[k] = s.counted[k]
			}
			s.ended[k] = s.ended[k].plus(counts{lost: lostBy(o)})
		}
		delete(s.open, k)
		delete(s.redriven, k)
	case durable.OutcomeDelivered:
		if s.flaw == recordIsForgotten && s.flaw.strikes(o.ID) {
			return
		}
		if o.Tracked {
			delete(s.open, k)
			delete(s.redriven, k)
			delete(s.dead, k)
		}
		if _, ok := s.deliveries[k]; !ok {
			s.deliveries[k] = o
		}
		s.recordExchange(o)
	}
}

// endLeases charges leases that ended without an outcome.
func (s *store) endLeases(consumer uint32, ends []durable.LeaseEnd, atMs int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range ends {
		if j := s.state(jobKey{consumer, e.ID}); !j.Status.Over() && j.Attempts < e.Attempt {
			s.recordOne(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: consumer, ID: e.ID, Priority: e.Priority,
				Attempts: e.Attempt,
				AtMs:     atMs, NextMs: atMs, Phase: durable.PhaseLeaseEnded, Error: "the lease ended without an outcome",
				Worker: e.Worker})
		}
	}
}

// reopenAs stores an open job; a row that is there keeps its priority.
func (s *store) reopenAs(k jobKey, o durable.Outcome) {
	if old, ok := s.open[k]; ok {
		o.Priority = old.Priority
	} else {
		delete(s.counted, k)
	}
	s.open[k] = o
}

// counts are what is counted of a job beside its attempts.
type counts struct{ givenBack, lost int }

func (c counts) plus(more counts) counts {
	return counts{c.givenBack + more.givenBack, c.lost + more.lost}
}

// count adds to the counts of an open job.
func (s *store) count(k jobKey, more counts) { s.counted[k] = s.counted[k].plus(more) }

// lostBy is how many leases an outcome says are lost.
func lostBy(o durable.Outcome) int {
	if o.Phase == durable.PhaseLeaseEnded {
		return 1
	}
	return 0
}

// state is what is stored about a job. Call it with mu held.
func (s *store) state(k jobKey) durable.JobState {
	state := func(status durable.JobStatus, o durable.Outcome) durable.JobState {
		return durable.JobState{Status: status, Attempts: o.Attempts, ChangedMs: o.AtMs, StatusCode: o.StatusCode,
			Worker: o.Worker}
	}
	if o, ok := s.deliveries[k]; ok {
		return state(durable.Delivered, o)
	}
	if o, ok := s.dead[k]; ok {
		j := state(durable.Dead, o)
		j.Error, j.Reason, j.Discarded = o.Error, o.Reason, o.Forget
		j.GivenBack, j.LeasesLost = s.ended[k].givenBack, s.ended[k].lost
		j.Fingerprint = o.Fingerprint()
		return j
	}
	if o, ok := s.open[k]; ok {
		j := state(durable.Open, o)
		j.NextMs, j.Error, j.RedrivenMs = o.NextMs, o.Error, s.redriven[k]
		j.GivenBack, j.LeasesLost, j.Worker = s.counted[k].givenBack, s.counted[k].lost, ""
		return j
	}
	return durable.JobState{}
}

// reopen moves dead letters to open, with a fresh count or their own.
func (s *store) reopen(consumer uint32, ids []ident.ID, nowMs int64, again bool) []durable.OpenJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reopenHere(consumer, ids, nowMs, again)
}

// reopenHere is reopen with mu held.
func (s *store) reopenHere(consumer uint32, ids []ident.ID, nowMs int64, again bool) []durable.OpenJob {
	sorted := slices.SortedFunc(slices.Values(ids), ident.ID.Compare)
	var out []durable.OpenJob
	for _, id := range slices.Compact(sorted) {
		k := jobKey{consumer, id}
		d, ok := s.dead[k]
		if _, over := s.deliveries[k]; !ok || over {
			continue
		}
		if again {
			d.Attempts = 0
		}
		kept := s.ended[k]
		if again {
			kept = counts{}
		}
		d.NextMs, d.AtMs, d.StatusCode, d.Error = nowMs, nowMs, 0, ""
		delete(s.dead, k)
		s.reopenAs(k, d)
		s.counted[k] = kept
		delete(s.ended, k)
		s.redriven[k] = nowMs
		out = append(out, durable.OpenJob{ID: id, Priority: d.Priority, Attempts: d.Attempts, NextMs: nowMs,
			RedrivenMs: nowMs})
	}
	return out
}
