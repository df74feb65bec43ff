//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// pullers race for the jobs of the pull consumer: each job must have one winner.
const pullers = 4

// pollPause is the wait of a worker that found nothing to do.
const pollPause = 20 * time.Millisecond

// leaseHeader is on the answer to the one request that claimed a job.
const leaseHeader = "X-Broker-Lease"

// A pulledJob is an entry of queued-jobs.
type pulledJob struct {
	ID       string
	Attempts int
	Message  struct {
		MessageID, Payload, PayloadEncoding, ContentType string
		Headers                                          map[string]string
	}
}

// pull works as the pull consumer until ctx ends: list, claim, book, acknowledge.
func (b *broker) pull(ctx context.Context, l *ledger) error {
	tokens := map[string]string{
		"X-Broker-Channel-Token": channelID + "-token", "X-Broker-Consumer-Token": pullID + "-token", "Content-Type": contentType,
	}
	for ctx.Err() == nil {
		var page struct{ Result []pulledJob }
		err := b.want(ctx, http.StatusOK, http.MethodGet, consumerPath(pullID)+"/queued-jobs?limit=100", nil, tokens, &page)
		if err != nil {
			return ended(ctx, err)
		}
		for _, j := range page.Result {
			if err := b.work(ctx, l, j, tokens); err != nil {
				return ended(ctx, err)
			}
		}
		if len(page.Result) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pollPause):
			}
		}
	}
	return nil
}

// ended turns an error that the end of ctx caused into none.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// work claims a listed job and, if this worker is the winner, delivers it.
func (b *broker) work(ctx context.Context, l *ledger, j pulledJob, tokens map[string]string) error {
	path := consumerPath(pullID) + "/job/" + j.ID
	r, err := b.do(ctx, http.MethodPost, path, []byte(`{"NextState":"INFLIGHT"}`), tokens)
	switch {
	case err != nil:
		return err
	case r.status == http.StatusBadRequest: // another worker has delivered it since we listed it
		return nil
	case r.status != http.StatusAccepted:
		return fmt.Errorf("claim job %s: status %d: %s", j.ID, r.status, r.body)
	case r.header.Get(leaseHeader) == "": // another worker has it
		return nil
	}
	a, err := j.arrival()
	if err != nil {
		return err
	}
	l.add(a)
	return b.want(ctx, http.StatusAccepted, http.MethodPost, path, []byte(`{"NextState":"DELIVERED"}`), tokens, nil)
}

// arrival is the job as a consumer sees it. The listed attempts are those before
// the claim.
func (j *pulledJob) arrival() (arrival, error) {
	a := arrival{
		id: j.Message.MessageID, event: j.Message.Headers[eventHeader], delivery: j.Message.Headers[deliveryHeader],
		contentType: j.Message.ContentType, attempt: strconv.Itoa(j.Attempts + 1), body: []byte(j.Message.Payload),
	}
	if j.Message.PayloadEncoding != "" {
		if j.Message.PayloadEncoding != "base64" {
			return a, fmt.Errorf("job %s: unknown payload encoding %q", j.ID, j.Message.PayloadEncoding)
		}
		body, err := base64.StdEncoding.DecodeString(j.Message.Payload)
		if err != nil {
			return a, fmt.Errorf("job %s: %w", j.ID, err)
		}
		a.body = body
	}
	return a, nil
}
