package sqs

import (
	"time"

	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func (c *call) deleteMessage(in *deleteMessage) (any, error) {
	return nil, c.settleOne(in.QueueUrl, settling{ReceiptHandle: in.ReceiptHandle}, true)
}

func (c *call) changeVisibility(in *changeVisibility) (any, error) {
	s := settling{ReceiptHandle: in.ReceiptHandle, VisibilityTimeout: in.VisibilityTimeout}
	return nil, c.settleOne(in.QueueUrl, s, false)
}

func (c *call) settleOne(queueURL string, s settling, done bool) error {
	q, err := c.queue(queueURL)
	if err != nil {
		return err
	}
	return c.settle(q, []settling{s}, done)[0]
}

func (c *call) deleteBatch(in *deleteBatch) (any, error) {
	entries := make([]settling, len(in.Entries))
	for i, e := range in.Entries {
		entries[i] = settling{Id: e.Id, ReceiptHandle: e.ReceiptHandle}
	}
	out := &deletedBatch{}
	var err error
	out.Successful, out.Failed, err = c.settleBatch(in.QueueUrl, entries, true)
	return out, err
}

func (c *call) changeBatch(in *changeBatch) (any, error) {
	out := &changedBatch{}
	var err error
	out.Successful, out.Failed, err = c.settleBatch(in.QueueUrl, in.Entries, false)
	return out, err
}

func (c *call) settleBatch(queueURL string, entries []settling, done bool) (ok []settledEntry, failed []failure,
	err error) {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Id
	}
	if err := checkEntries(ids); err != nil {
		return nil, nil, err
	}
	q, err := c.queue(queueURL)
	if err != nil {
		return nil, nil, err
	}
	ok = []settledEntry{}
	for i, err := range c.settle(q, entries, done) {
		if err != nil {
			failed = append(failed, failureOf(ids[i], err))
		} else {
			ok = append(ok, settledEntry{ids[i]})
		}
	}
	return ok, failed, nil
}

// settle makes what a receiver says of messages, and returns an error for each entry.
func (c *call) settle(q queue, entries []settling, done bool) []error {
	errs := make([]error, len(entries))
	var reports []pull.Report
	var places []int
	for i, e := range entries {
		r, err := e.report(q, done)
		if err != nil {
			errs[i] = err
			continue
		}
		reports, places = append(reports, r), append(places, i)
	}
	if len(reports) == 0 {
		return errs
	}
	st := c.standing(q)
	for n, err := range c.o.Plane.Settle(c.rc, &st, reports) {
		errs[places[n]] = settled(err, done)
	}
	return errs
}

// report returns what an entry says.
func (s *settling) report(q queue, done bool) (r pull.Report, err error) {
	r, of, err := parseHandle(s.ReceiptHandle)
	switch {
	case err != nil:
		return r, err
	case of != q.k.No:
		return r, errOtherQueue
	}
	switch n := s.VisibilityTimeout; {
	case done:
		r.Done = true
	case n == nil:
		return r, missingParameter("VisibilityTimeout")
	case *n < 0 || *n > mostVisibility:
		return r, invalid(*n, "VisibilityTimeout", "Must be between 0 and 43200.")
	default:
		r.Keep = time.Duration(*n) * time.Second
	}
	return r, nil
}

var errOtherQueue = badHandle.New("The input receipt handle is one of another queue.")

// settled turns the error of a report into that of SQS. A message that is not the receiver's any more counts as
// deleted: it is, or its new receiver has it.
func settled(err error, done bool) error {
	if err == nil {
		return nil
	}
	switch p := problem.FromChange(err); p.Code {
	case "job_twice":
		if done {
			return nil
		}
		return badHandle.New("The message of this receipt handle is in the batch twice; the first entry counts.")
	case "lease_lost", "invalid_transition":
		if done {
			return nil
		}
		return notInFlight.New("The specified message isn't in flight, or another receiver has it.")
	case "job_not_found":
		if done {
			return nil // it was deleted long ago
		}
		return badHandle.New("The input receipt handle is not a valid receipt handle: there is no such message.")
	case "job_of_other_consumer":
		return errOtherQueue
	}
	return err
}
