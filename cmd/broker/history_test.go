package main

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A historyWorld is brokers whose store goes back to an earlier state with the same catalogue: the 40
// jobs of a pull consumer that were delivered meanwhile are open in it, and messages are missing.
type historyWorld struct {
	*stage
	w       *world
	db      *sql.DB
	brokers []*process
	tables  []string
	version int64
	lost    string
}

const historyJobs = 40

func newHistoryWorld(t *testing.T, w *world) *historyWorld {
	w.with(quick...)
	h := &historyWorld{w: w, db: w.openDatabase(""), brokers: []*process{w.start()}}
	if w.redis != nil {
		h.brokers = append(h.brokers, w.start())
	}
	h.stage = h.brokers[0].stage(t, "held")
	h.tables = w.allTables(h.db)
	var last ident.ID
	for i := range historyJobs {
		id, err := ident.Parse(h.message(h.publish(fmt.Sprint("m-", i))).ID)
		require.NoError(t, err)
		last = id
	}
	h.awaitQueued("held", historyJobs)
	h.version = w.backUp(h.db, h.tables)
	h.deliverAll()
	for i := range 3 {
		h.lost = h.publish(fmt.Sprint("lost-", i))
	}
	h.awaitQueued("held", 3)
	eventually(t, "the watermark", func() bool {
		var n int
		require.NoError(t, h.db.QueryRow("SELECT COUNT(*) FROM marks WHERE message_id >= ?", last[:]).Scan(&n))
		return n == 1
	})
	return h
}

func (h *historyWorld) deliverAll() {
	for _, job := range h.queued("held", "limit=100") {
		lease := h.claim("held", job.ID)
		require.Equal(h.t, 202, h.move("held", job.ID, to("DELIVERED"), "X-Broker-Lease", lease).status)
	}
}

func (h *historyWorld) goBack() { h.w.restore(h.db, h.tables, h.version) }

// requireWhole waits until the jobs of the earlier state, and no others, are queued, and delivers them.
func (h *historyWorld) requireWhole() {
	h.t.Helper()
	jobs := h.awaitQueued("held", historyJobs)
	for i, job := range jobs {
		require.Equal(h.t, fmt.Sprint("m-", i), job.Message.Payload)
	}
	require.Equal(h.t, 404, h.do("GET", h.lost, "").status)
	h.deliverAll()
	for _, b := range h.brokers {
		on := h.on(b)
		eventually(h.t, "the books", func() bool {
			k := on.books("").Result[0]
			return k.Balanced && k.Delivered == historyJobs && k.Accepted == historyJobs
		})
	}
	for _, b := range h.brokers {
		h.on(b).publish("after")
	}
	h.awaitQueued("held", len(h.brokers))
	for _, b := range h.brokers {
		require.Zero(h.t, b.stop())
	}
}

func (h *historyWorld) awaitNoticed(p *process) {
	h.t.Helper()
	eventually(h.t, "the broker notices", func() bool { return p.gauge(h.t, "penstock_store_restorations_total") > 0 })
}

// A job of a message that is gone, which a worker reports after the store went back, is no difference
// in the books for long.
func TestFaultAnOutcomeOfAMessageThatIsGoneLeavesTheBooks(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		h := newHistoryWorld(t, w)
		job := h.queued("held", "limit=1")[0].ID
		lease := h.claim("held", job)
		h.goBack()
		h.move("held", job, to("DELIVERED"), "X-Broker-Lease", lease)
		h.requireWhole()
	})
}

func TestFaultAnOlderStateOfTheStoreUnderRunningBrokersIsNoticed(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		h := newHistoryWorld(t, w)
		h.goBack()
		for _, b := range h.brokers {
			h.awaitNoticed(b)
		}
		h.requireWhole()
	})
}

func TestFaultAnOlderStateOfTheStoreUnderStoppedBrokersIsNoticed(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		h := newHistoryWorld(t, w)
		for _, b := range h.brokers {
			require.Zero(t, b.stop())
		}
		h.goBack()
		for i := range h.brokers {
			h.brokers[i] = w.start()
		}
		h.stage = h.on(h.brokers[0])
		if w.redis != nil { // whose jobs are of the other history
			h.awaitNoticed(h.brokers[0])
		}
		h.requireWhole()
	})
}

func TestFaultABrokerThatWasCutOffNoticesAnOlderStateOnRealServers(t *testing.T) {
	parallel(t)
	h := newHistoryWorld(t, realWorld(t))
	h.brokers[1].freeze()
	h.goBack()
	h.awaitNoticed(h.brokers[0])
	time.Sleep(5 * time.Second) // its lease ends
	h.brokers[1].thaw()
	h.awaitNoticed(h.brokers[1])
	h.requireWhole()
}

// A replay that was over goes on where it was, and ends again.
func TestFaultAReplayOfAnOlderStateEnds(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p, sink, db := w.with(quick...).start(), newSink(t, nil), w.openDatabase("")
		s := p.stage(t, "k="+sink.URL)
		s.delivered(sink, 20)
		s.change("k", "pause")
		at := s.replay("k", everSince)
		require.Equal(t, "RUNNING", s.replayAt(at).State)
		tables := w.allTables(db)
		version := w.backUp(db, tables)
		s.change("k", "resume")
		s.awaitReplay(at, "DONE")
		w.restore(db, tables, version)
		eventually(t, "the earlier state", func() bool {
			return s.replayAt(at).State == "RUNNING" &&
				s.consumer("k").State == "PAUSED"
		})
		s.change("k", "resume")
		view := s.awaitReplay(at, "DONE")
		require.EqualValues(t, 20, view.Delivered)
	})
}
