package pull

import (
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/redisq"
)

// ClaimedHeader says in every answer to a request for INFLIGHT whether the job is now the caller's: the
// status is 202 also for the loser of a race, because the job is in the state that it asked for.
const ClaimedHeader = "X-Broker-Claimed"

var errTwoLeases = problem.New(400, "duplicate_field", "The request has a lease in "+LeaseHeader+
	" and another one in its body.")

// takeLease takes the lease that a request for one job presents in its header, if there is one.
func (e *update) takeLease(rc *fasthttp.RequestCtx) error {
	if lease := rc.Request.Header.Peek(LeaseHeader); len(lease) > 0 && e.Lease != string(lease) {
		if e.Lease != "" {
			return errTwoLeases
		}
		e.Lease = string(lease)
	}
	if e.Lease == "" && e.NextState == "QUEUED" && *e != (update{ID: e.ID, NextState: e.NextState}) {
		return errNeedLease // a delay of a job that the caller does not have
	}
	return nil
}

// moveEntry moves a job as a batch update of this one entry does.
func (p *Puller) moveEntry(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer,
	e update) error {
	begun := time.Now()
	one := &struct { // one allocation
		updates [1]update
		ids     [1]ident.ID
		errs    [1]error
		sinks   [1]answerTo
	}{updates: [1]update{e}}
	u := updating{p: p, ch: ch, k: k, updates: one.updates[:], ids: one.ids[:], errs: one.errs[:], sinks: one.sinks[:]}
	u.make(ctx)
	if p.traces != nil {
		u.settled(rc, begun)
	}
	if u.errs[0] == nil && e.NextState == "INFLIGHT" {
		rc.Response.Header.Set(LeaseHeader, e.Lease)
		writeClaimed(rc, e.Lease, 0, begun.Add(p.leaseFor(k, &e)))
	}
	return u.errs[0]
}

// answerInFlight says whether the caller has claimed the job, and until when it has it. A lease without
// a token is that of another worker.
func answerInFlight(rc *fasthttp.RequestCtx, k *durable.Consumer, lease redisq.Lease, deadline time.Time) {
	if lease.Token == "" {
		rc.Response.Header.Set(ClaimedHeader, "false")
		writeSmall(rc, func(b []byte) []byte {
			return append(b, `{"Claimed":false,"Detail":"Another worker has this job."}`+"\n"...)
		})
		return
	}
	setLease(rc, k, lease.Token)
	writeClaimed(rc, leaseText(k, lease.Token), lease.Attempt, deadline)
}

// writeClaimed answers that the job is the caller's under a lease. attempt is 0 where it was extended.
func writeClaimed(rc *fasthttp.RequestCtx, lease string, attempt int, deadline time.Time) {
	rc.Response.Header.Set(ClaimedHeader, "true")
	writeSmall(rc, func(b []byte) []byte {
		b = append(b, `{"Claimed":true,"Lease":`...)
		b = jsontext.Append(b, lease)
		if attempt > 0 {
			b = append(b, `,"Attempt":`...)
			b = strconv.AppendInt(b, int64(attempt), 10)
		}
		b = append(b, `,"Deadline":"`...)
		b = deadline.UTC().AppendFormat(b, time.RFC3339Nano)
		return append(b, "\"}\n"...)
	})
}
