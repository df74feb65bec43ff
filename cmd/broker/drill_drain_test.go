package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A drain is the batch pull workers of one consumer, what they were handed, and
// how quickly and in which order.
type drain struct {
	p          *process
	deliveries *deliveries
	want       int // different messages in the end
	limit      int // jobs of a claim
	// handed is told of each job that a claim brought, at the time of its answer.
	handed func(j apitype.ClaimedJob, at time.Time) (first bool)

	mu      sync.Mutex
	claims  []time.Duration // of each claim that brought jobs, waiting for them included
	short   int             // claims that brought fewer than they asked for
	refused int             // requests answered 503
	// atFlush is true from a flush until Redis knows all open jobs again. floor is
	// the lowest priority that a claim has brought whose whole time was away from
	// that, floorAll the same of all claims; -1 stands for none.
	atFlush             bool
	floor, floorAll     int
	disorder, disorders int       // see order
	flushed             time.Time // zero: not yet
	again               time.Time // the first answer after that with something new
}

func newDrain(p *process, l *deliveries, want int) *drain {
	return &drain{p: p, deliveries: l, want: want, limit: drillBatch, floor: -1, floorAll: -1,
		handed: func(j apitype.ClaimedJob, _ time.Time) (first bool) {
			_, first = l.deliver(j.ID, j.Message.Payload)
			return first
		}}
}

// work claims and finishes until everything was delivered and nothing is left.
func (d *drain) work() error {
	for last := time.Now(); ; {
		jobs, err := d.claim()
		if err == nil && len(jobs) > 0 {
			last = time.Now()
			err = d.finish(jobs)
		}
		if err != nil {
			return err
		}
		if len(jobs) == 0 && d.deliveries.count() >= d.want {
			return nil
		}
		if time.Since(last) > patience {
			return fmt.Errorf("%d of %d messages came, and no more for %v", d.deliveries.count(), d.want, patience)
		}
	}
}

func (d *drain) claim() ([]apitype.ClaimedJob, error) {
	d.mu.Lock()
	floor, floorAll, atFlush := d.floor, d.floorAll, d.atFlush
	d.mu.Unlock()
	sent := time.Now()
	r, err := d.p.try("POST", fmt.Sprintf("/channel/c/consumer/k/claim?limit=%d&wait=1s&timeout=40", d.limit), "",
		consumerTokens("k")...)
	took := time.Since(sent)
	if err == nil && r.status == 503 { // Redis was too slow: ask again
		d.refuse()
		return nil, nil
	}
	if err != nil || r.status != 200 {
		return nil, fmt.Errorf("claim: %d %s %w", r.status, r.body, err)
	}
	var page apitype.ClaimedJobs
	if err := json.Unmarshal([]byte(r.body), &page); err != nil {
		return nil, err
	}
	var fresh []int // priorities of what comes the first time
	for _, j := range page.Result {
		if d.handed(j, sent.Add(took)) && j.Attempt == 1 { // else it was in flight: an answer was lost
			fresh = append(fresh, j.Priority)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(page.Result) > 0 {
		d.claims = append(d.claims, took)
	}
	if len(page.Result) < d.limit {
		d.short++
	}
	if len(fresh) > 0 && d.again.IsZero() && !d.flushed.IsZero() && sent.After(d.flushed) {
		d.again = sent.Add(took)
	}
	d.order(fresh, floor, floorAll, atFlush || d.atFlush)
	return page.Result, nil
}

// order compares what a claim brought with the lowest priority that had been
// brought when it was sent. Nothing is published meanwhile, so a message that
// comes for the first time and is above that was waiting then, while a lower one
// was handed out: disorder. Where the lower one was handed out near a flush it
// counts in disorders alone. Claims that overlap cannot be compared and are not.
func (d *drain) order(fresh []int, floor, floorAll int, atFlush bool) {
	for _, priority := range fresh {
		if floor >= 0 && priority > floor {
			d.disorder++
		}
		if floorAll >= 0 && priority > floorAll {
			d.disorders++
		}
	}
	if len(fresh) == 0 {
		return
	}
	least := slices.Min(fresh)
	if d.floorAll < 0 || least < d.floorAll {
		d.floorAll = least
	}
	if !atFlush && (d.floor < 0 || least < d.floor) {
		d.floor = least
	}
}

// refuse counts a 503, and waits as its Retry-After asks for.
func (d *drain) refuse() {
	d.mu.Lock()
	d.refused++
	d.mu.Unlock()
	time.Sleep(time.Second)
}

// finish reports the jobs delivered, until it is told that they are. 409 is what a
// job is answered whose lease went with Redis: it comes again.
func (d *drain) finish(jobs []apitype.ClaimedJob) error {
	var body strings.Builder
	body.WriteString(`{"Updates":[`)
	for i, j := range jobs {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"ID":%q,"Lease":%q,"NextState":"DELIVERED"}`, j.ID, j.Lease)
	}
	body.WriteString("]}")
	for end := time.Now().Add(patience); ; {
		r, err := d.p.try("POST", "/channel/c/consumer/k/jobs", body.String(), consumerTokens("k")...)
		if err == nil && strings.Count(r.body, `"Status":202`)+strings.Count(r.body, `"Status":409`) == len(jobs) {
			return nil
		}
		if refused := r.status == 503 || strings.Contains(r.body, `"Status":503`); err != nil || !refused ||
			time.Now().After(end) {
			return fmt.Errorf("finish: %d %s %w", r.status, tail(r.body, 300), err)
		}
		d.refuse()
	}
}

// takeClaims returns the times of the claims since it was called last.
func (d *drain) takeClaims() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	claims := d.claims
	d.claims = nil
	return claims
}

// flush wipes Redis under the workers. It returns when that was, when the first
// claim after it brought something new, when Redis knew of all open jobs again (at
// most a minute later), and which jobs may come again.
func (d *drain) flush(r *rig) (at, again, known time.Time, held map[ident.ID]bool) {
	r.b.Helper()
	set := func(atFlush bool, flushed time.Time) {
		d.mu.Lock()
		d.atFlush, d.flushed = atFlush, flushed
		d.mu.Unlock()
	}
	set(true, time.Time{})
	at, held = r.flush()
	flushed := time.Now()
	set(true, flushed)
	for known = time.Now(); known.Before(at.Add(patience)); known = time.Now() {
		if level, err := r.level(); err == nil && level.knows(d.want-d.deliveries.count()) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	set(false, flushed)
	eventually(r.b, "a job after the flush", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		again = d.again
		return !again.IsZero()
	})
	return at, again, known, held
}

// quantile is the value below which a share of the times lies, in ms.
func quantile(times []time.Duration, share float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[int(share*float64(len(sorted)-1))]) / 1e6
}
