package simulation

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The flaws of the store: each method here is that of durable.Store without one of its protections. All
// are called within the turn of the store.

// Insert forgets commits, keys, the guard, moves of schedules and their changes.
func (s *store) Insert(ctx context.Context, node durable.NodeLease, batch []*durable.Message) []error {
	switch s.flaw {
	case commitIsForgotten:
		return s.insertSome(ctx, node, batch)
	case keysAreForgotten:
		s.forgetKeys(batch)
	case receiptKeysAreForgotten:
		s.forgetKeys(slices.DeleteFunc(slices.Clone(batch), func(m *durable.Message) bool {
			return !strings.HasPrefix(m.Key, durable.ReceiptKey(durable.ReceiptID{})[:1])
		}))
	case changesAreIgnored:
		batch = s.asChanged(ctx, batch)
	case movesAreForgotten:
		defer s.keepRows("scheduled", "id", s.scheduleOf(batch))()
	}
	errs := s.Store.Insert(ctx, node, batch)
	if s.flaw == guardIsOff {
		for i, err := range errs {
			if errors.Is(err, durable.ErrStale) {
				errs[i] = s.force(ctx, node, batch[i])
			}
		}
	}
	return errs
}

// insertSome leaves out the messages that commitIsForgotten strikes.
func (s *store) insertSome(ctx context.Context, node durable.NodeLease, batch []*durable.Message) []error {
	errs := make([]error, len(batch))
	for i, m := range batch {
		if !s.flaw.strikes(m.ID) {
			errs[i] = s.Store.Insert(ctx, node, []*durable.Message{m})[0]
		}
	}
	return errs
}

// forgetKeys forgets who has the keys of messages.
func (s *store) forgetKeys(batch []*durable.Message) {
	for _, m := range batch {
		s.write(`DELETE FROM message_keys WHERE channel_no = ? AND msg_key = ? AND id <> ?`, m.ChannelNo, []byte(m.Key),
			m.ID[:])
	}
}

// asChanged gives messages of schedules the last change of their schedule.
func (s *store) asChanged(ctx context.Context, batch []*durable.Message) []*durable.Message {
	out := slices.Clone(batch)
	for i, m := range out {
		if m.Occurrence == nil {
			continue
		}
		for _, now := range must(s.Store.ScheduledRows(ctx, []ident.ID{m.Occurrence.Of})) {
			other, of := *m, *m.Occurrence
			of.ChangedMs = now.ChangedMs
			other.Occurrence, out[i] = &of, &other
		}
	}
	return out
}

// scheduleOf returns the IDs of schedules that movesAreForgotten strikes.
func (s *store) scheduleOf(batch []*durable.Message) (ids [][]byte) {
	for _, m := range batch {
		if m.Occurrence != nil && s.flaw.strikes(m.ID) {
			ids = append(ids, m.Occurrence.Of[:])
		}
	}
	return ids
}

// keepRows returns a function that puts rows back as they are now.
func (s *store) keepRows(table, key string, ids [][]byte) (putBack func()) {
	var kept []func()
	for _, id := range ids {
		kept = append(kept, s.keep(table, `WHERE `+key+` = ?`, id))
	}
	return func() {
		for _, put := range kept {
			put()
		}
	}
}

// force stores a message that the guard refuses: it makes what the guard asks true for a moment.
func (s *store) force(ctx context.Context, node durable.NodeLease, m *durable.Message) error {
	for _, table := range []string{"nodes", "channels", "clock"} {
		defer s.keep(table, "")()
	}
	s.write(`UPDATE channels SET audience = ?, shape = ?, paused = 0 WHERE no = ?`, m.Audience, m.Shape, m.ChannelNo)
	s.write(`UPDATE nodes SET token = ?, expires_ms = ?, least_version = 0 WHERE no = ?`, node.Token[:],
		int64(math.MaxInt32)<<20, node.No)
	s.write(`UPDATE clock SET ms = 0, ahead_ms = 0`)
	late := max(s.nowMs()-m.ID.Millis(), 0)
	s.behindMs.Add(late)
	defer s.behindMs.Add(-late)
	return s.Store.Insert(ctx, node, []*durable.Message{m})[0]
}

// Record forgets outcomes, purges, responses and the replies that are delivered.
func (s *store) Record(ctx context.Context, outcomes []durable.Outcome) error {
	kept := slices.DeleteFunc(slices.Clone(outcomes), func(o durable.Outcome) bool {
		return s.flaw == recordIsForgotten && o.Kind == durable.OutcomeDelivered && s.flaw.strikes(o.ID) ||
			s.flaw == purgeIsForgotten && o.Reason == durable.QueuePurged && s.flaw.strikes(o.ID)
	})
	for i := range kept {
		o := &kept[i]
		if s.flaw == responsesAreForgotten && o.Exchange != nil && s.flaw.strikes(o.Exchange.ID) {
			o.Exchange = nil
		}
		if s.flaw == repliesAreForgotten && s.flaw.strikes(o.ReplyTo.ID) {
			o.ReplyTo = durable.ExchangeKey{}
		}
	}
	if err := s.Store.Record(ctx, kept); err != nil {
		return err
	}
	for i := range kept {
		if rule := kept[i].Tombstone; rule != nil && rule.Tripped {
			s.changed[cmp.Or(rule.ConsumerNo, kept[i].ConsumerNo)] = time.Now()
		}
	}
	return nil
}

// JobStates hides the states of jobs.
func (s *store) JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState,
	error) {
	if s.flaw == statesAreHidden {
		return map[ident.ID]durable.JobState{}, nil
	}
	return s.Store.JobStates(ctx, consumerNo, ids)
}

// Job hides the state of a job.
func (s *store) Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	j, err := s.Store.Job(ctx, k, id)
	if s.flaw == statesAreHidden {
		j.JobState = durable.JobState{}
	}
	return j, err
}

// Messages mixes payloads.
func (s *store) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error) {
	msgs, err := s.Store.Messages(ctx, channelNo, ids)
	if s.flaw == payloadsAreMixed {
		mix(msgs, s.look().of(channelNo))
	}
	return msgs, err
}

// SaveWatermarks runs ahead.
func (s *store) SaveWatermarks(ctx context.Context, seen durable.Clock, settled []durable.Settled) (map[uint32]ident.ID,
	error) {
	if s.flaw == marksRunAhead {
		for i := range settled {
			settled[i].Through = ident.AtMillis(settled[i].Through.Millis() + 5000)
		}
	}
	return s.Store.SaveWatermarks(ctx, seen, settled)
}

// Links forgets the chains of ordering keys.
func (s *store) Links(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]durable.Link, error) {
	if s.flaw == chainIsForgotten {
		return map[ident.ID]durable.Link{}, nil
	}
	return s.Store.Links(ctx, channelNo, ids)
}

// Purge removes messages whose jobs are open.
func (s *store) Purge(ctx context.Context, p durable.Purge) (durable.Purged, error) {
	out, err := s.Store.Purge(ctx, p)
	if s.flaw == openIsPurged && err == nil {
		for _, m := range s.look().of(p.ChannelNo) {
			if m.ID.Compare(p.After) > 0 && m.ID.Compare(out.Last) <= 0 && s.flaw.strikes(m.ID) {
				s.write(`DELETE FROM messages WHERE channel_no = ? AND id = ?`, m.ChannelNo, m.ID[:])
				out.Removed++
			}
		}
	}
	return out, err
}

// Changes hides the states of consumers.
func (s *store) Changes(ctx context.Context, after int64) (durable.Changes, error) {
	c, err := s.Store.Changes(ctx, after)
	for i := range c.Consumers {
		if s.flaw == statesAreStale {
			c.Consumers[i].State = durable.StateActive
		}
	}
	return c, err
}

// Schedule stores times that are early.
func (s *store) Schedule(ctx context.Context, node durable.NodeLease, batch []*durable.Scheduled) []error {
	if s.flaw == timesAreEarly {
		batch = slices.Clone(batch)
		for i, m := range batch {
			if s.flaw.strikes(m.ID) {
				early := *m
				early.DueMs -= 1000
				batch[i] = &early
			}
		}
	}
	return s.Store.Schedule(ctx, node, batch)
}

// AdvanceReplay moves the progress too far, or from any place.
func (s *store) AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (bool, error) {
	switch s.flaw {
	case progressRunsAhead:
		to = ident.AtMillis(to.Millis() + 1000)
	case progressIsUnguarded:
		from = must(s.Replay(ctx, no)).Settled
	}
	return s.Store.AdvanceReplay(ctx, no, from, to, jobs, bytes)
}

// AdvanceRedriving forgets what it has opened.
func (s *store) AdvanceRedriving(ctx context.Context, p durable.RedriveStep) ([]durable.OpenJob, durable.Redriving,
	error) {
	moved, out, err := s.Store.AdvanceRedriving(ctx, p)
	if s.flaw == redrivesAreForgotten {
		s.write(`DELETE FROM redriving_jobs WHERE consumer_no = ? AND no = ?`, p.ConsumerNo, p.No)
	}
	return moved, out, err
}

// anybody returns the owner of a bulk in place of another one, as if the store did not look who asks or
// whether the bulk is paused. done restores the pause.
func (s *store) anybody(ctx context.Context, h durable.BulkOwner) (owner durable.BulkOwner, done func()) {
	b, err := s.BulkByID(ctx, h.ID)
	if s.flaw != stepsAreUnguarded || err != nil {
		return h, func() {}
	}
	s.write(`UPDATE bulks SET paused = 0 WHERE id = ?`, h.ID[:])
	return b.BulkOwner, func() { s.write(`UPDATE bulks SET paused = ? WHERE id = ?`, b.Paused, h.ID[:]) }
}

// RunBulk takes the word of anybody.
func (s *store) RunBulk(ctx context.Context, h durable.BulkOwner, total int64) error {
	owner, done := s.anybody(ctx, h)
	defer done()
	return s.Store.RunBulk(ctx, owner, total)
}

// RenewBulk renews the lease of whoever has the bulk.
func (s *store) RenewBulk(ctx context.Context, h durable.BulkOwner) error {
	owner, done := s.anybody(ctx, h)
	defer done()
	return s.Store.RenewBulk(ctx, owner)
}

// ReleaseBulk ends the right of whoever has the bulk.
func (s *store) ReleaseBulk(ctx context.Context, h durable.BulkOwner, waitMs int64, tries int, reason string) error {
	owner, done := s.anybody(ctx, h)
	defer done()
	return s.Store.ReleaseBulk(ctx, owner, waitMs, tries, reason)
}

// StepBulk takes steps from anybody, or forgets the checkpoint.
func (s *store) StepBulk(ctx context.Context, node durable.NodeLease, step *durable.BulkStep) error {
	switch {
	case s.flaw == stepsAreUnguarded:
		b, err := s.BulkByID(ctx, step.By.ID)
		if err != nil {
			return err
		}
		owner, done := s.anybody(ctx, step.By)
		defer done()
		step.By, step.From = owner, b.At
	case s.flaw == checkpointIsForgotten && len(step.Messages) > 0 && s.flaw.strikes(step.Messages[0].ID):
		defer s.keepRows("bulks", "id", [][]byte{step.By.ID[:]})()
	}
	return s.Store.StepBulk(ctx, node, step)
}
