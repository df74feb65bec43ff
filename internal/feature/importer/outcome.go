package importer

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// diedThere begins the error of a dead letter that died at the old broker.
const diedThere = "dead at webhook-broker"

// mostOutcomes bounds the outcomes of one transaction.
const mostOutcomes = 500

// end records what became of the jobs of messages that are here.
func (im *Importer) end(ctx context.Context, all []*plan, r *Report) error {
	of := map[*durable.Consumer][]*plannedJob{}
	by := map[*plannedJob]*plan{}
	var order []*durable.Consumer
	for _, p := range all {
		if p.stored.IsZero() {
			continue
		}
		for i := range p.ends {
			j := &p.ends[i]
			if of[j.k] == nil {
				order = append(order, j.k)
			}
			of[j.k], by[j] = append(of[j.k], j), p
		}
	}
	var outcomes []durable.Outcome
	for _, k := range order {
		states, err := im.states(ctx, k, of[k], by)
		if err != nil {
			return err
		}
		var again []ident.ID
		for _, j := range of[k] {
			p := by[j]
			o, is, redrive := im.outcome(p, j, states[p.stored])
			if is {
				outcomes = append(outcomes, o)
			}
			if redrive {
				again = append(again, p.stored)
			}
			if (is || redrive) && !p.fresh {
				r.Ended++
			}
		}
		if _, err := im.o.Store.Redrive(ctx, k.No, again, im.o.NowMs()); err != nil {
			return err
		}
	}
	for len(outcomes) > 0 {
		n := min(len(outcomes), mostOutcomes)
		if err := im.o.Store.Record(ctx, outcomes[:n]); err != nil {
			return err
		}
		outcomes = outcomes[n:]
	}
	return nil
}

// states reads what the store has of the jobs of messages that were here before.
func (im *Importer) states(ctx context.Context, k *durable.Consumer, all []*plannedJob,
	by map[*plannedJob]*plan) (map[ident.ID]durable.JobState, error) {
	var ids []ident.ID
	for _, j := range all {
		if p := by[j]; !p.fresh {
			ids = append(ids, p.stored)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return im.o.Store.JobStates(ctx, k.No, ids)
}

// outcome returns what is to be recorded of a job that is in a state here. redrive: it died at the old broker, and
// was requeued there since.
func (im *Importer) outcome(p *plan, j *plannedJob, here durable.JobState) (o durable.Outcome, is, redrive bool) {
	at := j.changedMs
	if at == 0 {
		at = im.o.NowMs()
	}
	o = durable.Outcome{ConsumerNo: j.k.No, ID: p.stored, Priority: priorityOf(p.message), AtMs: at,
		ProducerNo: p.producer.No, Attempts: int(min(max(j.retries, 0), 10_000)) + 1, Tracked: true}
	switch j.status {
	case delivered:
		o.Kind = durable.OutcomeDelivered
		return o, here.Status != durable.Delivered, false
	case dead:
		o.Kind, o.Reason = durable.OutcomeDead, durable.AttemptsExhausted
		o.Error = fmt.Sprintf("%s after %d attempts", diedThere, o.Attempts)
		return o, !here.Status.Over(), false
	}
	if here.Status == durable.Dead {
		return o, false, strings.HasPrefix(here.Error, diedThere)
	}
	o.Kind, o.NextMs, o.Attempts = durable.OutcomeRetry, max(j.nextMs, im.o.NowMs()), o.Attempts-1
	o.Error = "failed at webhook-broker"
	return o, here.Status == durable.Waiting && o.Attempts > 0, false
}
