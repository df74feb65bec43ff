package durable

import "strconv"

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

// ID is the ID of the replay for clients.
func (r *Replay) ID() string { return strconv.FormatUint(uint64(r.No), 10) }
