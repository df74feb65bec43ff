package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Bounds of the questions about messages that did not arrive. Messages beyond them count as
// pending, since their state is not known.
const (
	askWithin  = 2 * time.Minute
	askBriefly = 5 * time.Second // after a signal
	maxInquiry = 20_000          // messages
)

// An inquirer asks the broker about messages that did not arrive: first for all dead letters, then
// for each message.
type inquirer struct {
	ctx   context.Context // of the inquiry, bounded by askWithin
	w     *window
	dead  []*DeadLetters
	known map[uint64]map[string]string // status of jobs by consumer ID, of the messages asked about so far
}

// inquiry returns the Ask of Reconcile, nil if everything has arrived.
func (w *window) inquiry(ctx context.Context) Ask {
	if w.ledger.Owed() <= 0 && w.ledger.uncertain.Load() == 0 {
		return nil
	}
	q := &inquirer{ctx: ctx, w: w, known: map[uint64]map[string]string{}, dead: make([]*DeadLetters,
		len(w.subject.consumers))}
	for i, k := range w.subject.consumers {
		d, err := w.control.DeadLetters(ctx, k)
		if err != nil {
			w.failed("dead letters cannot be read", []byte(err.Error()))
			d = &DeadLetters{}
		}
		q.dead[i] = d
	}
	return q.standing
}

func (q *inquirer) standing(consumer int, seq uint64, id ident.ID) Standing {
	key := ""
	if q.w.config.MessageIDs {
		key = string(appendKey(nil, q.w.run, seq))
	}
	if q.dead[consumer].Has(id, key) {
		return StandingDead
	}
	if key == "" {
		if id.IsZero() {
			return StandingGone // it has no name to ask for
		}
		key = id.String()
	}
	k := q.w.subject.consumers[consumer]
	jobs, asked := q.known[seq]
	if !asked {
		if len(q.known) >= maxInquiry || q.ctx.Err() != nil {
			return StandingPending
		}
		var err error
		if jobs, err = q.w.control.Jobs(q.ctx, k.channel, key); err != nil {
			q.w.failed("the broker cannot be asked about messages", []byte(err.Error()))
			return StandingPending
		}
		q.known[seq] = jobs
	}
	switch jobs[k.id] {
	case "QUEUED", "INFLIGHT":
		return StandingPending
	case "DEAD":
		return StandingDead
	default:
		return StandingGone
	}
}

// Jobs returns the status of the jobs of a message by consumer, an empty map if the broker does not
// know the message.
func (c *Control) Jobs(ctx context.Context, channel, message string) (map[string]string, error) {
	status, body, err := c.do(ctx, http.MethodGet, "/channel/"+channel+"/message/"+message, nil)
	if err != nil {
		return nil, err
	}
	var view struct {
		Jobs []struct{ ConsumerID, Status string }
	}
	jobs := map[string]string{}
	if status == http.StatusNotFound {
		return jobs, nil
	}
	if status != http.StatusOK {
		return nil, statusError{status, clip(body, 300)}
	}
	if err := json.Unmarshal(body, &view); err != nil {
		return nil, err
	}
	for _, j := range view.Jobs {
		jobs[j.ConsumerID] = j.Status
	}
	return jobs, nil
}
