package jobs

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// listScan is the number of messages that one statement of a list looks at: with 3 million messages on
	// MariaDB it takes 10 to 20 ms for 500, and 150 ms where nothing is in its memory.
	listScan = 500
	// listFew is the number of jobs up to which a list takes the IDs of what waits from Redis; listLeased
	// that of leases, those that end first.
	listFew    = 2000
	listLeased = 20_000
)

// Delayed is a status of lists alone: of a job that is QUEUED and due later.
const Delayed = "DELAYED"

// A Lister lists the jobs of consumers. The order is that of the messages, oldest or newest first.
type Lister struct {
	Store ListStore
	Queue ListQueue
	NowMs func() int64 // the clock of the store
}

// A ListStore is the part of durable.Store that a Lister needs.
type ListStore interface {
	Settled(ctx context.Context, consumerNo uint32) (ident.ID, error)
	JobRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, limit int) ([]durable.JobRow, error)
	OpenRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, limit int) ([]durable.JobRow, error)
	JobRowsOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]durable.JobRow, error)
}

// A ListQueue is the part of redisq.Queue that a Lister needs.
type ListQueue interface {
	Stats(ctx context.Context, consumer uint32) (redisq.Stats, error)
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	Queued(ctx context.Context, consumer uint32, most int) ([]ident.ID, error)
	Leased(ctx context.Context, consumer uint32, most int) ([]ident.ID, error)
}

// A Listing is what a list is about.
type Listing struct {
	Consumer *durable.Consumer
	Status   string   // Queued, Delayed or InFlight; "": all that is not over
	From     ident.ID // where the page begins; zero: at the begin
	Back     bool     // the newest first
	Limit    int      // 1 or more
}

// A Listed is one job of a list.
type Listed struct {
	Row durable.JobRow
	Job Job
}

// List returns a page of the open jobs of a consumer. next is where the next page begins, zero at the end.
// A page looks at a bounded number of messages, so it may have fewer jobs than it may, or none, and a next
// page all the same.
//
// Where Redis has all that waits, and that is little, it says which jobs these are. Else the store does: the
// rows of open jobs up to the settled watermark, and all messages behind it.
func (l *Lister) List(ctx context.Context, of Listing) (page []Listed, next ident.ID, err error) {
	switch of.Status {
	case InFlight:
		ids, err := l.Queue.Leased(ctx, of.Consumer.No, listLeased)
		if err != nil {
			return nil, next, err
		}
		return l.listOf(ctx, of, ids)
	case Delayed:
		return l.listOpen(ctx, of, ident.Max())
	}
	stats, err := l.Queue.Stats(ctx, of.Consumer.No)
	if err != nil {
		return nil, next, err
	}
	if !stats.Whole || stats.Ready > listFew || stats.Delayed > listFew || stats.Leased > listLeased {
		return l.listStored(ctx, of)
	}
	ids, err := l.Queue.Queued(ctx, of.Consumer.No, 2*listFew)
	if err == nil && of.Status == "" {
		var leased []ident.ID
		leased, err = l.Queue.Leased(ctx, of.Consumer.No, listLeased)
		ids = append(ids, leased...)
	}
	if err != nil {
		return nil, next, err
	}
	return l.listOf(ctx, of, ids)
}

// listOf lists those of some jobs that are in the page and have its status.
func (l *Lister) listOf(ctx context.Context, of Listing, ids []ident.ID) (page []Listed, next ident.ID, err error) {
	slices.SortFunc(ids, of.compare)
	ids = slices.Compact(ids)
	if !of.From.IsZero() {
		at, _ := slices.BinarySearchFunc(ids, of.From, of.compare)
		ids = ids[at:]
	}
	// A job may have ended, or begun, since its ID was read: another page shows what stands behind them.
	if len(ids) > of.Limit {
		next, ids = ids[of.Limit], ids[:of.Limit]
	}
	rows, err := l.Store.JobRowsOf(ctx, of.Consumer, ids)
	if err != nil {
		return nil, next, err
	}
	slices.SortFunc(rows, func(a, b durable.JobRow) int { return of.compare(a.ID, b.ID) })
	page, _, err = l.filter(ctx, of, rows)
	return page, next, err
}

// listStored lists what the store has.
func (l *Lister) listStored(ctx context.Context, of Listing) (page []Listed, next ident.ID, err error) {
	settled, err := l.Store.Settled(ctx, of.Consumer.No)
	if err != nil {
		return nil, next, err
	}
	first, second := l.listOpen, l.listBehind
	if of.Back {
		first, second = second, first
	}
	if page, next, err = first(ctx, of, settled); err != nil || !next.IsZero() {
		return page, next, err
	}
	rest := of
	if rest.Limit -= len(page); rest.Limit == 0 { // the first one of the second part may be the next
		rest.Limit = 1
		more, at, err := second(ctx, rest, settled)
		if len(more) > 0 {
			at = more[0].Row.ID
		}
		return page, at, err
	}
	more, next, err := second(ctx, rest, settled)
	return append(page, more...), next, err
}

// listOpen lists jobs with a row of open_jobs, up to a message.
func (l *Lister) listOpen(ctx context.Context, of Listing, settled ident.ID) ([]Listed, ident.ID, error) {
	r := of.within(ident.ID{}, settled)
	if r.From.Compare(r.To) > 0 {
		return nil, ident.ID{}, nil
	}
	rows, err := l.Store.OpenRows(ctx, of.Consumer, r, listScan+1)
	if err != nil {
		return nil, ident.ID{}, err
	}
	return l.scanned(ctx, of, rows)
}

// listBehind lists the jobs of messages behind the settled watermark.
func (l *Lister) listBehind(ctx context.Context, of Listing, settled ident.ID) ([]Listed, ident.ID, error) {
	from := settled.Next()
	if since := of.Consumer.Since.Next(); since.Compare(from) > 0 {
		from = since
	}
	r := of.within(from, ident.Max())
	if r.From.Compare(r.To) > 0 {
		return nil, ident.ID{}, nil
	}
	rows, err := l.Store.JobRows(ctx, of.Consumer, r, listScan+1)
	if err != nil {
		return nil, ident.ID{}, err
	}
	return l.scanned(ctx, of, rows)
}

// within is the part of the page inside two bounds.
func (of *Listing) within(from, to ident.ID) durable.IDRange {
	r := durable.IDRange{From: from, To: to, Back: of.Back}
	switch {
	case of.From.IsZero():
	case of.Back && of.From.Compare(to) < 0:
		r.To = of.From
	case !of.Back && of.From.Compare(from) > 0:
		r.From = of.From
	}
	return r
}

// compare is the order of the list.
func (of *Listing) compare(a, b ident.ID) int {
	if of.Back {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// scanned returns the page that a scan has found, of which the last row is one too many if it has that many.
func (l *Lister) scanned(ctx context.Context, of Listing, rows []durable.JobRow) (page []Listed, next ident.ID,
	err error) {
	if len(rows) > listScan {
		next, rows = rows[listScan].ID, rows[:listScan]
	}
	page, left, err := l.filter(ctx, of, rows)
	if left < len(rows) {
		next = rows[left].ID
	}
	return page, next, err
}

// filter returns the first of the jobs that concern the consumer and have the status, up to the limit. The
// rows before left are examined.
func (l *Lister) filter(ctx context.Context, of Listing, rows []durable.JobRow) (page []Listed, left int, err error) {
	now := l.NowMs()
	for left < len(rows) {
		var part []durable.JobRow
		var at []int
		for i := left; i < len(rows) && len(part) < redisq.MaxBatch; i++ {
			if r := &rows[i]; !r.State.Status.Over() && of.Consumer.Concerns(r.Head()) &&
				(of.Status != Delayed || r.State.NextMs > now) {
				part, at = append(part, *r), append(at, i)
			}
		}
		if len(part) == 0 {
			return page, len(rows), nil
		}
		ids := make([]ident.ID, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		standings, err := l.Queue.Probe(ctx, of.Consumer.No, ids)
		if err != nil {
			return nil, left, err
		}
		for i, r := range part {
			if len(page) == of.Limit {
				return page, at[i], nil
			}
			if j := combine(r.ID, r.State, standings[i]); of.has(&j, now) {
				page = append(page, Listed{r, j})
			}
		}
		left = at[len(at)-1] + 1
	}
	return page, left, nil
}

// has reports whether a job has the status of the list.
func (of *Listing) has(j *Job, now int64) bool {
	switch of.Status {
	case "":
		return true
	case Delayed:
		return j.Status == Queued && (j.Standing.State == redisq.Delayed || j.Standing.State == redisq.Missing) &&
			j.NextAt.UnixMilli() > now
	}
	return j.Status == of.Status
}

// Are reports which of the jobs of a consumer, which are not over in the store, have a status: Queued,
// Delayed or InFlight.
func (l *Lister) Are(ctx context.Context, k *durable.Consumer, status string, rows []durable.JobRow) ([]bool, error) {
	ids := make([]ident.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	standings, err := l.Queue.Probe(ctx, k.No, ids)
	if err != nil {
		return nil, err
	}
	of, now, out := Listing{Status: status}, l.NowMs(), make([]bool, len(rows))
	for i, r := range rows {
		j := combine(r.ID, r.State, standings[i])
		out[i] = of.has(&j, now)
	}
	return out, nil
}
