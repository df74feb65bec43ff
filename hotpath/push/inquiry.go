package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A History has the stored attempts of jobs: the durable store.
type History interface {
	Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]durable.Attempt, error)
}

// maxInquiry bounds the bytes that are read of the answer of a status URL.
const maxInquiry = 64 << 10

// postUnlessProcessed makes one attempt, which ends by the deadline. Where the consumer may have
// processed the attempt before, and its policy has a status URL, the broker asks that URL first: 2xx ends
// the job as delivered, 404 sends the request again, and everything else fails the attempt, so
// the broker asks again after the backoff.
func (v *delivery) postUnlessProcessed(ctx context.Context, t *posting, p *policy.Policy,
	deadline time.Time) egress.Result {
	if p.StatusURL == "" || v.lease.Attempt == 1 && v.lease.Flags == 0 {
		return v.post(ctx, t, deadline)
	}
	begun := time.Now()
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	ambiguous, err := v.ambiguous(within)
	if err != nil {
		return Unsent(err)
	}
	if !ambiguous {
		return v.post(ctx, t, deadline)
	}
	status, err := v.inquire(within, p, deadline)
	switch {
	case errors.Is(err, errOtherFetches):
		return Unsent(err)
	case err != nil && v.d.life.Err() != nil:
		return egress.Result{Err: egress.ErrClosed, RetryAfter: -1}
	case err != nil:
		return egress.Result{Err: err, RetryAfter: -1, Sent: true, Took: time.Since(begun)}
	case status/100 == 2:
		v.note = fmt.Sprintf("the status URL answered %d: the consumer had processed an earlier attempt", status)
		return egress.Result{Status: status, RetryAfter: -1, Took: time.Since(begun)}
	case status == http.StatusNotFound:
		v.note = "the status URL answered 404: the message was sent again"
		return v.post(ctx, t, deadline)
	}
	return egress.Result{Err: fmt.Errorf("the status URL answered %d; it is asked again", status), RetryAfter: -1,
		Sent: true, Took: time.Since(begun)}
}

// ambiguous reports whether the consumer may have processed the attempt before. An attempt
// without a stored end is one whose lease ended, or whose broker did.
func (v *delivery) ambiguous(ctx context.Context) (bool, error) {
	stored, err := v.d.history.Attempts(ctx, v.consumer.No, v.msg.ID, 1)
	if err != nil || len(stored) == 0 {
		return true, err
	}
	last := stored[0]
	return last.Phase == durable.PhaseMaybeProcessed || v.lease.Attempt > 1 && last.No != v.lease.Attempt-1, nil
}

// inquire asks the status URL and returns the status of its answer. The error shows neither the
// URL nor what was answered, since both may contain secrets.
func (v *delivery) inquire(ctx context.Context, p *policy.Policy, deadline time.Time) (status int, err error) {
	client, ok := p.Authorization.OAuth2()
	if !ok {
		return v.askStatus(ctx, p, "")
	}
	failed := v.withToken(client, deadline, func(authorization string, _ bool) int {
		status, err = v.askStatus(ctx, p, authorization)
		return status
	})
	if failed != nil {
		return 0, failed
	}
	return status, err
}

// askStatus asks the status URL once. authorization is the value of that header, "" for the one of
// the policy.
func (v *delivery) askStatus(ctx context.Context, p *policy.Policy, authorization string) (status int, err error) {
	id := v.msg.PathID()
	req, err := http.NewRequestWithContext(egress.For(ctx, share.Consumer(v.consumer.Account())), http.MethodGet,
		p.StatusURL.For(id), http.NoBody)
	if err != nil {
		return 0, errInquiry
	}
	if p.Identity == policy.DiscloseAll {
		req.Header.Set(v.d.settings.TokenHeader, v.consumer.Token)
		req.Header.Set("X-Broker-Message-ID", id)
	}
	p.Prove(v.provable(req.Header.Set), v.webhookID(), nil, time.Now())
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header.Set("User-Agent", v.d.settings.UserAgent)
	resp, err := v.d.settings.Web.Do(req)
	if err != nil {
		return 0, errInquiry
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxInquiry) // so that the connection can be used again
	return resp.StatusCode, nil
}

var errInquiry = fmt.Errorf("the status URL did not answer; it is asked again")
