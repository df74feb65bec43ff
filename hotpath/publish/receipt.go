package publish

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// AckHeader says in an answer of 201 or 202 what it promises.
const AckHeader = "X-Broker-Ack"

const receiptPath = "/receipt/"

var errNoReceipt = problem.New(404, "receipt_not_found", "No broker has given this receipt, or it is older than "+
	"seven days.")

// Committed is what a 201 promises in a channel.
func Committed(a policy.Ack) policy.Ack {
	if a == policy.AckReplicated {
		return a
	}
	return policy.AckDurable
}

// A Standby takes messages that the store does not take in time: the journal of the broker (package
// standby).
type Standby interface {
	// Submit is that of accept, with a time in which the store has to take the messages. The Terms count
	// none of their bytes.
	Submit(ctx context.Context, t accept.Terms, budget time.Duration, msgs []*durable.Message) Kept
	// Lookup reads a receipt, and reports whether its message surely waits in this broker.
	Lookup(text string) (r journal.Receipt, here, ok bool)
}

// A Kept is the submission of a Standby.
type Kept interface {
	Wait()
	Outcome(i int) error
	Receipt(i int) (r journal.Receipt, ok bool)
	Release()
}

// A ReceiptStore is the part of durable.Store that the route of receipts needs.
type ReceiptStore interface {
	Receipts(ctx context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt, error)
	ConfirmReceipt(ctx context.Context, id durable.ReceiptID) error
}

// Receipt is GET /receipt/{receipt}: 202 while the message waits in a journal, 303 to the message
// once it is stored, 410 if it could not be stored. The receipt is the permission: it is signed.
func (p *Publisher) Receipt(rc *fasthttp.RequestCtx) {
	text, _ := rc.UserValue("receipt").(string)
	if err := p.receipt(rc, text); err != nil {
		problem.Write(rc, err)
	}
}

func (p *Publisher) receipt(rc *fasthttp.RequestCtx, text string) error {
	if p.standby == nil {
		return errNoReceipt
	}
	r, here, ok := p.standby.Lookup(text)
	switch {
	case !ok:
		return errNoReceipt
	case here:
		return waits(rc)
	}
	ctx, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
	defer cancel()
	own, place := durable.ReceiptID(r), durable.ReceiptID(r.Place())
	found, err := p.receipts.Receipts(ctx, []durable.ReceiptID{own, place})
	if err != nil {
		return err
	}
	got, known := found[own]
	if !known { // the journal lost it, and the disk did not return its receipt
		got, known = found[place]
	}
	switch {
	case known && got.Message == "":
		return problem.Newf(410, "not_stored", "The message could not be stored: %s.", got.Reason)
	case known:
		ch := p.catalogue.ChannelByNo(got.ChannelNo)
		if ch == nil {
			return problem.New(410, "not_stored", "The channel of the message was deleted.")
		}
		if ch.Intake.Ack == policy.AckReplicated { // set since the message was published
			if err := p.receipts.ConfirmReceipt(ctx, got.ID); err != nil {
				return err
			}
		}
		rc.Response.Header.Set("Location", "/channel/"+ch.ID+"/message/"+got.Message)
		rc.SetStatusCode(fasthttp.StatusSeeOther)
		return nil
	case time.Since(time.UnixMilli(r.Ms())) > durable.ReceiptsKept:
		return errNoReceipt
	}
	return waits(rc) // in the journal of another broker, or held
}

// waits answers that a message waits in a journal.
func waits(rc *fasthttp.RequestCtx) error {
	rc.Response.Header.Set(AckHeader, policy.AckJournal.String())
	rc.Response.Header.Set("Retry-After", "1")
	rc.SetStatusCode(fasthttp.StatusAccepted)
	return nil
}
