package main

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/proxy"
)

// An underwayWorld is brokers with work of every kind under way, and two dumps of their store: an old one
// of the begin, and a later one of when all of it was over, behind the watermarks.
type underwayWorld struct {
	*stage
	w       *world
	db      *sql.DB
	brokers []*process
	k, r    *sink // of a push consumer, and of one with a replay
	healed  atomic.Bool

	replayed, soon, far, keyed string
	due                        time.Time

	journal *stage // a paused channel with a message in the journal; nil: none
	receipt string

	old, later dump
}

// A dump is a copy of all tables.
type dump struct {
	tables  []string
	version int64
	prefix  string
}

func (h *underwayWorld) dump(prefix string) dump {
	d := dump{h.w.allTables(h.db), h.w.catalogueVersion(h.db), prefix}
	h.w.copyTables(h.db, prefix, d.tables)
	return d
}

func (h *underwayWorld) goBack(to dump) { h.w.restoreFrom(h.db, to.prefix, to.tables, to.version) }

const underwayJobs = 20

func newUnderwayWorld(t *testing.T, w *world, brokers ...*process) *underwayWorld {
	h := &underwayWorld{w: w, db: w.openDatabase(""), brokers: brokers, k: newSink(t, nil), r: newSink(t, nil)}
	bad := newSink(t, func(int, received) int {
		if h.healed.Load() {
			return 204
		}
		return 500
	})
	h.stage = brokers[0].stage(t, "k="+h.k.URL, "r="+h.r.URL, "bad="+bad.URL, "held")
	for i := range underwayJobs {
		h.publish(fmt.Sprint("m-", i))
	}
	h.keyed = h.publish("keyed", "Idempotency-Key", "of the dump")
	h.allDelivered("k", "r")
	eventually(t, "the dead letters", func() bool { return len(h.dead("bad", 100)) == underwayJobs+1 })
	h.awaitQueued("held", underwayJobs+1)
	h.change("r", "pause")
	h.replayed = h.replay("r", everSince)
	require.Equal(t, "RUNNING", h.replayAt(h.replayed).State)
	h.due = time.Now().Add(lead)
	h.soon = h.stage.later(h.due.Format(time.RFC3339Nano), "soon")
	h.far = h.stage.later(in(time.Hour), "far", "X-Broker-Message-ID", "far")
	return h
}

// allDelivered waits until all jobs of some push consumers are delivered.
func (s *stage) allDelivered(consumers ...string) {
	s.t.Helper()
	for _, k := range consumers {
		eventually(s.t, "the deliveries to "+k, func() bool {
			for _, one := range s.books("").Result {
				if one.ConsumerID == k {
					return one.Delivered == one.Accepted && one.Accepted > 0
				}
			}
			return false
		})
	}
}

// finish ends all the work, with more messages, and waits until the watermarks are behind it.
func (h *underwayWorld) finish() {
	h.healed.Store(true)
	h.redriveAll("bad", "bad-token")
	h.change("r", "resume")
	h.awaitReplay(h.replayed, "DONE")
	eventually(h.t, "the scheduled message", func() bool { return h.k.times("soon") > 0 })
	h.publish("newer", "Idempotency-Key", "of later")
	h.allDelivered("k", "r", "bad")
	h.deliverHeld()
	last, err := ident.Parse(h.message(h.publish("last")).ID)
	require.NoError(h.t, err)
	h.allDelivered("k", "r", "bad")
	h.deliverHeld()
	eventually(h.t, "the watermarks", func() bool {
		var n int
		require.NoError(h.t, h.db.QueryRow("SELECT COUNT(*) FROM marks WHERE message_id >= ?", last[:]).Scan(&n))
		return n >= 4
	})
}

func (h *underwayWorld) deliverHeld() (bodies []string) {
	h.t.Helper()
	eventually(h.t, "the jobs of held", func() bool {
		for _, job := range h.queued("held", "limit=100") {
			bodies = append(bodies, job.Message.Payload)
			lease := h.claim("held", job.ID)
			require.Equal(h.t, 202, h.move("held", job.ID, to("DELIVERED"), "X-Broker-Lease", lease).status)
		}
		for _, one := range h.books("").Result {
			if one.ConsumerID == "held" {
				return one.Delivered == one.Accepted
			}
		}
		return false
	})
	return bodies
}

// requireOld requires that all is as in the old dump, on each broker, and ends the work once more.
func (h *underwayWorld) requireOld() {
	t := h.t
	for _, b := range h.brokers {
		on := h.on(b)
		eventually(t, "the earlier state", func() bool {
			return on.replayAt(h.replayed).State == "RUNNING" &&
				on.consumer("r").State == "PAUSED"
		})
	}
	again := h.post("keyed", "Idempotency-Key", "of the dump")
	require.Equal(t, 201, again.status, again.body)
	require.Equal(t, h.keyed, again.header.Get("Location"))
	require.Equal(t, "true", again.header.Get(replayed))
	requireProblem(t, h.post("other", "Idempotency-Key", "of the dump"), 422, "idempotency_key_reused")
	fresh := h.post("newer", "Idempotency-Key", "of later")
	require.Equal(t, 201, fresh.status, fresh.body)
	require.Empty(t, fresh.header.Get(replayed), "its message is gone with the later state")
	eventually(t, "the scheduled message, again", func() bool {
		return h.k.times("soon") > 1 || h.scheduled(h.soon).Status == "DISPATCHED"
	})
	require.Equal(t, "SCHEDULED", h.scheduled(h.far).Status)
	if h.journal != nil {
		require.Equal(t, 200, h.journal.do("POST", h.journal.path("/resume"), "").status)
		h.redeem(h.receipt)
		require.Equal(t, "in the journal", h.journal.awaitQueued("jk", 1)[0].Message.Payload)
	}
	h.change("r", "resume")
	done := h.awaitReplay(h.replayed, "DONE")
	require.EqualValues(t, underwayJobs+1, done.Delivered)
	held := h.deliverHeld()
	for i := range underwayJobs {
		require.Contains(t, held, fmt.Sprint("m-", i))
	}
	require.Contains(t, held, "newer")
	eventually(t, "the dead letters of the dump, redriven", func() bool {
		h.redriveAll("bad", "bad-token")
		return len(h.dead("bad", 100)) == 0
	})
	for i, b := range h.brokers {
		h.on(b).publish(fmt.Sprint("after ", i))
	}
	h.allDelivered("k", "r", "bad")
	require.Contains(t, strings.Join(h.deliverHeld(), " "), "after 0")
	for _, b := range h.brokers {
		on := h.on(b)
		eventually(t, "the books", func() bool {
			h.deliverHeld() // the scheduled message may have come after the others: it has been seen in an earlier life, too
			for _, one := range on.books("").Result {
				if !one.Balanced || one.Delivered != one.Accepted || one.Accepted != int64(underwayJobs+3+len(h.brokers)) {
					return false
				}
			}
			return true
		})
	}
	require.Empty(t, h.queued("held", "limit=100"))
	for _, b := range h.brokers {
		require.Zero(t, b.stop())
	}
}

// holdInJournal leaves a message of a channel that is paused in the journal of the first broker.
func (h *underwayWorld) holdInJournal(t *testing.T, link *proxy.Proxy) {
	h.journal = h.stage.process.stage(t, "jk")
	h.put(h.journal.path(), "ack", "journal")
	link.Set(proxy.Weather{StallUp: true, StallDown: true})
	r := h.journal.post("in the journal")
	require.Equal(t, 202, r.status, r.body)
	h.receipt = r.header.Get("Location")
	h.brokers[0].kill()
	link.Cut()
	link.Set(proxy.Weather{})
	other := h.journal.on(h.brokers[1])
	require.Equal(h.t, 200, other.do("POST", h.journal.path("/pause"), "").status)
	h.brokers[0] = h.w.start()
	h.stage, h.journal = h.on(h.brokers[0]), h.journal.on(h.brokers[0])
	eventually(h.t, "the held message", func() bool {
		return h.brokers[0].gauge(h.t, "penstock_journal_held_messages") == 1
	})
}

// The later dump, the old one at once, and the old one again: brokers that have noticed the one may not
// miss the other.
func (h *underwayWorld) goBackTwice() {
	h.goBack(h.later)
	h.goBack(h.old)
	for _, b := range h.brokers {
		eventually(h.t, "the broker notices", func() bool { return b.gauge(h.t, "penstock_store_restorations_total") > 0 })
	}
	h.publish("between")
	time.Sleep(time.Second) // the scans of the first restoration are under way
	h.goBack(h.old)
}

func TestFaultAnOlderDumpIsRestoredTwiceWhileWorkIsUnderWay(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		brokers := []*process{w.start()}
		if w.redis != nil {
			brokers = append(brokers, w.start())
		}
		h := newUnderwayWorld(t, w, brokers...)
		h.old = h.dump("kept_old_")
		h.finish()
		h.later = h.dump("kept_later_")
		h.goBackTwice()
		h.requireOld()
	})
}

func TestFaultAnOlderDumpOfMySQLIsRestoredTwiceWhileAMessageWaitsInAJournal(t *testing.T) {
	parallel(t)
	w, link := journalWorld(t)
	w.with(quick...)
	h := newUnderwayWorld(t, w, w.start(), w.start("BROKER_DATA_DIR="+t.TempDir()))
	h.holdInJournal(t, link)
	h.old = h.dump("kept_old_")
	h.finish()
	h.later = h.dump("kept_later_")
	h.goBackTwice()
	h.requireOld()
}

// A bulk that is done in the later state, and half done in the old one, goes on there.
func TestFaultABulkOfAnOlderDumpGoesOn(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		p, sink, db := w.start(), newSink(t, nil), w.openDatabase("")
		s := p.stage(t, "k="+sink.URL)
		h := &underwayWorld{stage: s, w: w, db: db}
		var rows strings.Builder
		for i := range 60 {
			fmt.Fprintf(&rows, "{\"Payload\":\"row-%d\",\"MessageID\":\"row-%d\"}\n", i, i)
		}
		at := s.bulk("application/x-ndjson", rows.String(), "X-Broker-Bulk-Rate", "10/1s")
		eventually(t, "a part of the rows", func() bool { n := s.bulkAt(at).Published; return n > 5 && n < 50 })
		turn := func(verb string) {
			r := s.do("POST", at+"/"+verb, "", producerTokens...)
			require.Equal(t, 200, r.status, r.body)
		}
		turn("pause") // else the tables of the dump are of several moments
		s.allDelivered("k")
		h.old = h.dump("kept_old_")
		turn("resume")
		s.awaitBulk(at, "DONE")
		h.goBack(h.old)
		h.goBack(h.old)
		eventually(t, "the earlier state", func() bool { return s.bulkAt(at).State == "PAUSED" })
		turn("resume")
		var b apitype.Bulk
		eventually(t, "the end of the bulk, again", func() bool {
			b = s.bulkAt(at)
			return b.State == "DONE" && b.Delivered == 60
		})
		require.EqualValues(t, 60, b.Published)
		require.Zero(t, b.Rejected)
		require.Zero(t, p.stop())
	})
}
