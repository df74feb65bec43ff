package exchange

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/limit"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// pollPlaces bounds the polls under way, pollsAtOnce those of one consumer.
	pollPlaces, pollsAtOnce = 128, 8
	// pollPage is the number of results of a consumer that one run asks for.
	pollPage = 128
	// pollYoung is the age from which a poll that hangs is ended, where another consumer waits.
	pollYoung = 3 * time.Second
	// crowdedAgain is the pause before results are looked at again that are due while the polls of
	// their consumer are under way, roomAgain that of a result that found no room for its response.
	crowdedAgain, roomAgain = 30 * time.Second, time.Second
	// flushEvery is the interval at which a run stores when results are due again.
	flushEvery = 500 * time.Millisecond
)

// A pollRun is the polls of one consumer in one run. Replies do not wait for it.
type pollRun struct {
	*Worker
	k      *durable.Consumer
	p      *policy.Policy
	limits redisq.Limits
	usual  atomic.Int64 // size of a response

	mu      sync.Mutex
	err     error
	later   map[int64][]ident.ID // results that are not there yet, by the time of the next poll
	flushed time.Time
	rated   time.Duration // the rate allows no poll for that long
}

// newPollPlaces returns the bound of polls. A consumer whose polls hang has a part of it.
func newPollPlaces() *share.Bound {
	return share.New(share.Options{Name: "result_polls", Most: pollPlaces, Young: pollYoung, Others: true})
}

// beginPolls asks for results in the background. It reports whether fewer are due at once.
func (w *Worker) beginPolls(ctx context.Context, k *durable.Consumer, due []durable.Work) (moved bool, err error) {
	if len(due) == 0 {
		return false, nil
	}
	if k.Held() {
		return true, w.delay(ctx, k, due, w.NowMs()+heldAgain.Milliseconds(), 0)
	}
	w.mu.Lock()
	running := w.polling[k.No]
	w.polling[k.No] = true
	w.mu.Unlock()
	if running {
		if len(due) <= pollPage {
			return false, nil
		}
		// They would hide the replies of the consumer, of which a page is read.
		return true, w.delay(ctx, k, due[pollPage:], w.NowMs()+crowdedAgain.Milliseconds(), 0)
	}
	w.wg.Go(func() {
		full := false
		err := guard.Do("polls of results", func() (err error) {
			full, err = w.runPolls(ctx, k)
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.Log.Warn("results of a consumer are late; the broker tries again", "consumer", k.No, "error", err)
		}
		w.mu.Lock()
		delete(w.polling, k.No)
		w.mu.Unlock()
		if full && err == nil {
			w.Stored(k.No) // for the next page
		}
	})
	return true, nil
}

// A place is that of one poll. Its ctx ends with it, and under pressure.
type place struct {
	ctx    context.Context
	permit *share.Permit
	stop   context.CancelFunc
}

func (w *Worker) place(ctx context.Context, k *durable.Consumer) place {
	ctx, stop := context.WithCancel(ctx)
	return place{ctx, w.places.Permit(share.Consumer(k.No), stop), stop}
}

func (p place) leave() {
	p.permit.Close()
	p.stop()
}

// runPolls asks for results. It reads which ones are due itself: a list that was read before the last
// run ended has results that this run has delayed. full: there may be more.
func (w *Worker) runPolls(ctx context.Context, k *durable.Consumer) (full bool, err error) {
	first := w.place(ctx, k)
	var due []durable.Work
	if first.permit.Wait(ctx, 1) == nil {
		due, err = w.duePolls(ctx, k.No)
	}
	if len(due) == 0 {
		first.leave()
		return false, err
	}
	p := w.Policies.Of(k.Policy)
	r := &pollRun{Worker: w, k: k, p: p, limits: limit.Of(p, redisq.Rate{}), later: map[int64][]ident.ID{},
		flushed: time.Now()}
	r.all(ctx, first, due)
	if err := r.flush(ctx, 0); err != nil {
		return false, err
	}
	return len(due) == pollPage, r.err
}

// duePolls returns the results of a consumer that are to be asked for now.
func (w *Worker) duePolls(ctx context.Context, no uint32) (polls []durable.Work, err error) {
	now := w.NowMs()
	due, err := w.Store.DueWork(ctx, no, now, page)
	for _, d := range due {
		if d.State == durable.DeliveredReceiver && d.DeadlineMs > now && len(polls) < pollPage {
			polls = append(polls, d)
		}
	}
	return polls, err
}

// all asks for each result, a few at a time, until the consumer changes.
func (r *pollRun) all(ctx context.Context, first place, due []durable.Work) {
	var wg sync.WaitGroup
	defer wg.Wait()
	some := make(chan struct{}, pollsAtOnce)
	for i, d := range due {
		some <- struct{}{}
		at := first
		if i > 0 {
			at = r.place(ctx, r.k)
			if at.permit.Wait(ctx, 1) != nil || !r.same() {
				at.leave()
				return
			}
		}
		wg.Go(func() {
			defer func() { <-some }()
			defer at.leave()
			err := guard.Do("poll of a result", func() error { return r.one(ctx, at.ctx, d) })
			if e := r.flush(ctx, flushEvery); err == nil {
				err = e
			}
			if err != nil {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
			}
		})
	}
}

// same reports whether the consumer is as it was, and this broker still asks for its results.
func (r *pollRun) same() bool {
	k := r.Catalogue.ConsumerByNo(r.k.No)
	return k != nil && k.Version == r.k.Version && !k.Held() && r.Owns(k.No)
}

// flush stores when results are due again, at most once in so often.
func (r *pollRun) flush(ctx context.Context, every time.Duration) error {
	r.mu.Lock()
	if time.Since(r.flushed) < every {
		r.mu.Unlock()
		return nil
	}
	later := r.later
	r.later, r.flushed = map[int64][]ident.ID{}, time.Now()
	r.mu.Unlock()
	for at, ids := range later {
		if err := r.Store.DelayWork(ctx, r.k.No, durable.DeliveredReceiver, ids, at, 1); err != nil {
			return err
		}
	}
	return nil
}
