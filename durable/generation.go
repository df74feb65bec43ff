package durable

import (
	"strconv"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A ReplayState says whether a replay makes jobs. The order counts: what is at least ReplayDone
// has ended.
type ReplayState uint8

// The states of a replay.
const (
	ReplayRunning ReplayState = iota
	ReplayPaused
	ReplayDone
	ReplayCancelled
)

// String returns the name of the state as clients see it.
func (s ReplayState) String() string {
	return [...]string{"RUNNING", "PAUSED", "DONE", "CANCELLED"}[min(s, ReplayCancelled)]
}

// Ended reports whether the replay makes no jobs any more.
func (s ReplayState) Ended() bool { return s >= ReplayDone }

// A ReplayOf says which jobs of the consumer a replay repeats.
type ReplayOf uint8

// The values of ReplayOf.
const (
	ReplayDelivered ReplayOf = iota
	ReplayDead
	ReplayAll // both
)

// String returns the name as clients see it.
func (o ReplayOf) String() string { return [...]string{"delivered", "dead", "all"}[min(o, ReplayAll)] }

// Matches reports whether a replay repeats a job of that state. A job that is open is delivered
// anyway, so it matches nothing.
func (o ReplayOf) Matches(s JobStatus) bool {
	return s == Delivered && o != ReplayDead || s == Dead && o != ReplayDelivered
}

// A Replay is the messages of a time, delivered to a consumer once more. All but its progress and
// state is fixed when it is created.
type Replay struct {
	No             uint32
	ChannelNo      uint32
	ConsumerNo     uint32
	After, Through ident.ID // messages with After < ID <= Through
	Of             ReplayOf
	Filter         string // "": all messages
	Rate           string // of package policy, "": no rate of its own
	State          ReplayState
	CreatedMs      int64
	StateMs        int64 // Unix ms of the last change of the state
	RemovedMs      int64 // messages before that time may have been removed, Unix ms; 0: none
	Matched, Bytes int64 // counted at the begin
	Estimated      bool  // Matched and Bytes
	// Settled is the progress: each message up to it is not repeated, or its job has an outcome or
	// a row in open_jobs. Jobs and JobBytes are those jobs and the bytes of their messages.
	Settled         ident.ID
	Jobs, JobBytes  int64
	Delivered, Dead int64 // of a replay that has ended; see ReplayCounts
	// SourceNo and RedriveNo are the redrive whose letters a replay has, 0: it has no redrive.
	SourceNo, RedriveNo uint32
	Version             int64
}

// columns are those of the table replays.
func (r *Replay) columns() columns {
	return columns{
		{"no", &r.No},
		{"channel_no", &r.ChannelNo},
		{"consumer_no", &r.ConsumerNo},
		{"after_id", asID{&r.After}},
		{"through_id", asID{&r.Through}},
		{"selected", &r.Of},
		{"filter", asBytes{&r.Filter}},
		{"rate", asBytes{&r.Rate}},
		{"state", &r.State},
		{"created_ms", &r.CreatedMs},
		{"state_ms", &r.StateMs},
		{"removed_ms", &r.RemovedMs},
		{"matched", &r.Matched},
		{"bytes", &r.Bytes},
		{"estimated", &r.Estimated},
		{"settled_id", asID{&r.Settled}},
		{"jobs", &r.Jobs},
		{"job_bytes", &r.JobBytes},
		{"delivered", &r.Delivered},
		{"dead", &r.Dead},
		{"source_no", &r.SourceNo},
		{"redrive_no", &r.RedriveNo},
		{"version", &r.Version},
	}
}

// ID is the ID of the replay for clients.
func (r *Replay) ID() string { return strconv.FormatUint(uint64(r.No), 10) }

// A generation of a consumer is what gives it jobs: the consumer itself, or a replay. A Consumer
// with Replay is that of a replay: it is in no list and has the position, the tokens and the policy
// of its consumer. Its number is that of the replay.

// Generation returns the consumer as the replay delivers to it. The replay is held while the
// consumer is, and goes with it.
func (k *Consumer) Generation(r *Replay) *Consumer {
	g := *k
	g.No, g.Replay = r.No, r
	switch {
	case r.State.Ended():
		g.State, g.StateMs = StateDeleted, r.StateMs
	case k.Deleted():
	case k.Held():
		g.State = StatePaused // the probe of a revived consumer is a job of its own
	case r.State == ReplayPaused:
		g.State, g.StateReason = StatePaused, "the replay is paused"
	}
	return &g
}

// Account returns the number of the consumer that the jobs count for: its failures, its pace and
// its holds.
func (k *Consumer) Account() uint32 {
	if k.Replay != nil {
		return k.Replay.ConsumerNo
	}
	return k.No
}
