package verify

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

type links map[ident.ID]durable.Link

func (l links) Links(context.Context, uint32, []ident.ID) (map[ident.ID]durable.Link, error) {
	return l, nil
}

// A job of an ordered consumer goes when the store has the outcome of the job before it.
func TestAJobWaitsForTheOneBeforeIt(t *testing.T) {
	older, before, id := ident.AtMillis(now-2), ident.AtMillis(now-1), ident.AtMillis(now)
	behind := durable.Link{Prev: before, Audience: 1}
	type states = map[ident.ID]durable.JobState
	for name, c := range map[string]struct {
		mode   policy.OnBlocked
		link   durable.Link
		states states
		want   Verdict
	}{
		"first of its key":         {want: Deliver},
		"waiting":                  {link: behind, want: Blocked},
		"failed before":            {link: behind, states: states{before: {Status: durable.Open}}, want: Blocked},
		"delivered":                {link: behind, states: states{before: {Status: durable.Delivered}}, want: Deliver},
		"removed by retention":     {link: durable.Link{Prev: before, Audience: -1}, want: Deliver},
		"before the consumer came": {link: durable.Link{Prev: before}, want: Deliver},
		"dead, block": {link: behind, states: states{before: {Status: durable.Dead, Attempts: 1}},
			want: Blocked},
		"dead, skip": {mode: policy.Skip, link: behind, states: states{before: {Status: durable.Dead,
			Attempts: 1}}, want: Deliver},
		"dead, dead-letter-key": {mode: policy.DeadLetterKey, link: behind,
			states: states{before: {Status: durable.Dead}}, want: DeadKey},
		"discarded, block": {link: behind, states: states{before: {Status: durable.Dead, Attempts: 1,
			Discarded: true}}, want: Deliver},
		"discarded, dead-letter-key": {mode: policy.DeadLetterKey, link: behind,
			states: states{before: {Status: durable.Dead, Attempts: 1, Discarded: true}}, want: Deliver},
		"discarded unsent, in flight": {link: behind, states: states{before: {Status: durable.Dead, Discarded: true}},
			want: Blocked},
		"discarded unsent, delivered": {link: behind, states: states{before: {Status: durable.Dead, Discarded: true},
			older: {Status: durable.Delivered}}, want: Deliver},
		"open, skip": {mode: policy.Skip, link: behind, want: Blocked},
		"dead unsent before, in flight": {mode: policy.Skip, link: behind, states: states{before: {Status: durable.Dead}},
			want: Blocked},
		"dead unsent before, delivered": {mode: policy.Skip, link: behind, states: states{before: {Status: durable.Dead},
			older: {Status: durable.Delivered}}, want: Deliver},
		"itself delivered": {link: behind, states: states{id: {Status: durable.Delivered}}, want: Over},
	} {
		t.Run(name, func(t *testing.T) {
			s := &table{states: c.states}
			v := verifierOf(s)
			v.Policies = policy.NewBook(policy.Policy{Ordered: true, OnBlocked: c.mode})
			v.Chain = links{id: c.link, before: {Prev: older, Audience: 1}}
			v.Cache.Put(&durable.Message{ID: id, Audience: 1, Headers: durable.OrderingLine("k", nil)})
			v.Cache.SetFresh(id, 7)
			one, many := Candidate{ID: id, Untouched: true}, []Candidate{{ID: id, Untouched: true}}
			require.False(t, v.Fresh(consumer, &one, 7), "only the store knows the job before it")
			require.NoError(t, v.One(t.Context(), consumer, &one))
			n, err := v.Verify(t.Context(), consumer, many, 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, c.want, one.Verdict)
			require.Equal(t, c.want, many[0].Verdict)
			require.Equal(t, c.want == Blocked || c.want == DeadKey, one.Verdict.SetAside())

			// An unordered consumer gets it at once.
			v.Policies = policy.NewBook(policy.Policy{})
			require.True(t, v.Fresh(consumer, &Candidate{ID: id, Untouched: true}, 7))
		})
	}
}

func TestAMessageWithoutAKeyIsFreshForAnOrderedConsumer(t *testing.T) {
	v := verifierOf(&table{})
	v.Policies, v.Chain = policy.NewBook(policy.Policy{Ordered: true}), links{}
	id := ident.AtMillis(now)
	v.Cache.Put(&durable.Message{ID: id, Audience: 1})
	v.Cache.SetFresh(id, 7)
	require.True(t, v.Fresh(consumer, &Candidate{ID: id, Untouched: true}, 7))
}
