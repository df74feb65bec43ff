package verify

import (
	"context"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A Chain knows the order of messages with the same ordering key: a durable.Store.
type Chain interface {
	Links(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]durable.Link, error)
}

// unattempted bounds how far behind a job the verifier looks for one that was attempted, past
// dead letters that were not.
const unattempted = 16

// passed bounds how many messages in a row the verifier passes that belong to the key but have no
// job of the consumer. Each costs one read by key.
const passed = 1000

// ordered returns what happens behind a dead letter, and whether the consumer is ordered.
func (v *Verifier) ordered(k *durable.Consumer) (policy.OnBlocked, bool) {
	if v.Policies == nil || v.Chain == nil || k.Replay != nil { // a replay may lack the job before
		return 0, false
	}
	p := v.Policies.Of(k.Policy)
	return p.OnBlocked, p.Ordered
}

// states returns the stored states of the undecided candidates. For an ordered consumer it also
// decides which of them have to wait for an earlier message of their key.
func (v *Verifier) states(ctx context.Context, k *durable.Consumer, cs []Candidate,
	ids []ident.ID) (map[ident.ID]durable.JobState, error) {
	mode, ordered := v.ordered(k)
	if !ordered {
		return v.Store.JobStates(ctx, k.No, ids)
	}
	var behind []*Candidate // with an earlier message that was not looked at yet
	keyed := make([]ident.ID, 0, len(ids))
	for i := range cs {
		c := &cs[i]
		if c.Verdict != Undecided {
			continue
		}
		if msg, _ := v.Cache.Get(c.ID); msg == nil || msg.Keyed() {
			c.after = c.ID
			keyed, behind = append(keyed, c.ID), append(behind, c)
		}
	}
	var states map[ident.ID]durable.JobState
	for round := 0; round == 0 || len(behind) > 0 && round < unattempted; round++ {
		links, err := v.links(ctx, k, keyed)
		if err != nil {
			return nil, err
		}
		ask, waiting := ids, behind[:0]
		ids = nil
		keyed = keyed[:0]
		for _, c := range behind {
			if l := links[c.after]; !l.Prev.IsZero() && k.Concerns(l.Before()) { // the message before concerns the consumer
				ask, waiting = append(ask, l.Prev), append(waiting, c)
				c.after = l.Prev
			}
		}
		behind = behind[:0]
		if len(ask) == 0 {
			break
		}
		got, err := v.Store.JobStates(ctx, k.No, ask)
		if err != nil {
			return nil, err
		}
		if states == nil {
			states = got
		}
		for _, c := range waiting {
			if c.wait = waits(got[c.after], mode); c.wait == lookBehind {
				keyed, behind = append(keyed, c.after), append(behind, c)
			}
		}
	}
	return states, nil
}

// links returns the links of messages, which lead past the messages that have no job of the
// consumer.
func (v *Verifier) links(ctx context.Context, k *durable.Consumer, ids []ident.ID) (map[ident.ID]durable.Link, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	links, err := v.Chain.Links(ctx, k.ChannelNo, ids)
	for round := 0; err == nil && round < passed; round++ {
		behind := map[ident.ID][]ident.ID{} // by the message that is passed
		for id, l := range links {
			if l.Passes(k) {
				behind[l.Prev] = append(behind[l.Prev], id)
			}
		}
		if len(behind) == 0 {
			break
		}
		if round == 0 {
			links = maps.Clone(links)
		}
		var more map[ident.ID]durable.Link
		more, err = v.Chain.Links(ctx, k.ChannelNo, slices.Collect(maps.Keys(behind)))
		for before, of := range behind {
			for _, id := range of {
				links[id] = more[before]
			}
		}
	}
	return links, err
}

// A wait says whether a job has to wait for the job before it in its key.
type wait uint8

const (
	goes wait = iota
	lookBehind
	waitsForIt
	diesWithIt
)

// waits returns what a job does behind a job in that state. A dead letter that was purged or deleted, or
// that has left the DLQ by its age, blocks nothing.
func waits(before durable.JobState, mode policy.OnBlocked) wait {
	switch {
	case before.Status == durable.Delivered:
		return goes
	case before.Status == durable.Dead && (before.Discarded || before.Reason == durable.QueuePurged):
		// nothing ends the wait for it
		return behindDead(before)
	case before.Status != durable.Dead || mode == policy.Block:
		return waitsForIt
	case mode == policy.DeadLetterKey:
		return diesWithIt
	}
	return behindDead(before)
}

// behindDead returns what a job does behind a dead letter that it need not wait for. Behind one that was
// never attempted, because it expired in the queue for example, an earlier job may be in flight.
func behindDead(dead durable.JobState) wait {
	if dead.Attempts == 0 {
		return lookBehind
	}
	return goes
}
