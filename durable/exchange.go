package durable

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An ExchangeState is how far the response to a message has come for one consumer.
type ExchangeState uint8

// The states of an exchange, in their order. Their numbers are stored. An exchange that has arrived
// has no row.
const (
	Arrived           ExchangeState = iota
	DeliveredReceiver               // the result is awaited
	ResponseReceived
	ResponseDelivered // to the producer of the message
	ExchangeFailed
)

// String returns the name of the state as clients see it.
func (s ExchangeState) String() string {
	return [...]string{"ARRIVED", "DELIVERED_TO_RECEIVER", "RESPONSE_RECEIVED_FROM_RECEIVER",
		"RESPONSE_DELIVERED_TO_SENDER", "FAILED"}[min(s, ExchangeFailed)]
}

// Never is the DueMs of an exchange with which nothing is left to do.
const Never = math.MaxInt64

// An Exchange is the row of the response of one consumer to one message.
type Exchange struct {
	ConsumerNo  uint32
	ID          ident.ID // of the message
	State       ExchangeState
	GoesBack    bool // the response is delivered to the producer
	Attempt     int
	Status      int
	Truncated   bool
	DeliveredMs int64 // when the consumer had the message, Unix ms
	ReceivedMs  int64 // when its response came; 0: not yet
	EndedMs     int64 // when the exchange reached its last state; 0: not yet
	DeadlineMs  int64 // of the result
	KeepMs      int64 // how long the response is kept after EndedMs; 0: as long as the message
	DueMs       int64 // when a broker has something to do; Never: nothing
	Tries       int   // polls of the result, or publications of the reply, so far
	URL         string
	Reason      string // of ExchangeFailed, or why there is no body any more
	Headers     []byte // "name:value\n" each
	Body        []byte
}

// Over reports whether the exchange is at its last state.
func (e *Exchange) Over() bool {
	return e.State > ResponseReceived || e.State == ResponseReceived && !e.GoesBack
}

// Bytes returns about how much memory the response takes; 0 of no exchange.
func (e *Exchange) Bytes() int {
	if e == nil {
		return 0
	}
	return len(e.Body) + len(e.Headers) + 256
}

// Answered puts a response that came at nowMs into an exchange, and sets what is to be done next.
func (e *Exchange) Answered(nowMs int64) {
	e.State, e.ReceivedMs, e.DueMs, e.URL, e.Tries = ResponseReceived, nowMs, Never, "", 0
	switch {
	case e.GoesBack:
		e.DueMs = 1 // at once, before any result that is to be polled
	default:
		e.end(nowMs)
	}
}

// Fail ends an exchange without a response.
func (e *Exchange) Fail(nowMs int64, reason string) {
	e.State, e.Reason, e.URL = ExchangeFailed, reason, ""
	e.end(nowMs)
}

func (e *Exchange) end(nowMs int64) {
	e.EndedMs, e.DueMs = nowMs, Never
	if e.KeepMs > 0 && len(e.Body)+len(e.Headers) > 0 {
		e.DueMs = nowMs + e.KeepMs
	}
}

// columns are those of the table exchanges.
func (e *Exchange) columns() columns {
	return columns{
		{"consumer_no", &e.ConsumerNo},
		{"message_id", asID{&e.ID}},
		{"state", &e.State},
		{"goes_back", &e.GoesBack},
		{"attempt", &e.Attempt},
		{"status_code", &e.Status},
		{"truncated", &e.Truncated},
		{"delivered_ms", &e.DeliveredMs},
		{"received_ms", &e.ReceivedMs},
		{"ended_ms", &e.EndedMs},
		{"deadline_ms", &e.DeadlineMs},
		{"keep_ms", &e.KeepMs},
		{"due_ms", &e.DueMs},
		{"tries", &e.Tries},
		{"url", asBytes{&e.URL}},
		{"reason", asNote{&e.Reason}},
		{"headers", asBlob{&e.Headers}},
		{"body", asBlob{&e.Body}},
	}
}

// moved are the columns that change with the state.
func (e *Exchange) moved() columns {
	return e.columns().only("state", "status_code", "truncated", "received_ms", "ended_ms", "due_ms", "tries", "url",
		"reason", "headers", "body")
}

var (
	// The first outcome of a job with a response counts.
	insertExchanges = ignoring(new(Exchange).columns().inserts("exchanges"))

	selectExchanges = `
SELECT` + new(Exchange).columns().names() + `
FROM exchanges
WHERE consumer_no = ?
  AND message_id IN (?...)`

	updateExchange = `
UPDATE exchanges
SET` + new(Exchange).moved().sets() + `
WHERE consumer_no = ?
  AND message_id = ?
  AND state = ?`
)

const (
	selectExchangeHeads = `
SELECT
    message_id,
    state,
    goes_back,
    LENGTH(body) + LENGTH(headers)
FROM exchanges
WHERE consumer_no = ?
  AND message_id IN (?...)`

	// A reply that was delivered ends the exchange.
	endExchange = `
UPDATE exchanges
SET
    state = 3,
    ended_ms = ?,
    due_ms = CASE WHEN keep_ms > 0 THEN keep_ms + ? ELSE ? END
WHERE consumer_no = ?
  AND message_id = ?
  AND state = 2`
)

// recordExchanges stores the exchanges of outcomes, and ends those whose replies were delivered.
// They are in the transaction of the outcomes: a crash leaves both or nothing.
func (s *Store) recordExchanges(ctx context.Context, tx *sql.Tx, delivered []Outcome) error {
	var all []*Exchange
	for i := range delivered {
		o := &delivered[i]
		if o.Exchange != nil {
			all = append(all, o.Exchange)
		}
		if o.ReplyTo.ConsumerNo != 0 {
			if err := exec(ctx, tx, endExchange, o.AtMs, o.AtMs, int64(Never), o.ReplyTo.ConsumerNo,
				o.ReplyTo.ID[:]); err != nil {
				return err
			}
		}
	}
	// An exchange of a replay has the number of its consumer, so the order of the outcomes is not that
	// of the keys.
	slices.SortStableFunc(all, func(a, b *Exchange) int {
		return cmp.Or(cmp.Compare(a.ConsumerNo, b.ConsumerNo), a.ID.Compare(b.ID))
	})
	inserted, err := s.insertExchanges(ctx, tx, all)
	if err != nil || inserted == int64(len(all)) {
		return err
	}
	return s.answerAwaited(ctx, tx, all)
}

// answerAwaited puts the responses among the exchanges into the rows that await one: an earlier
// delivery of the message brought none.
func (s *Store) answerAwaited(ctx context.Context, tx *sql.Tx, all []*Exchange) error {
	for _, part := range chunks(all, maxInList) {
		var consumers []uint32 // in their order
		ids := map[uint32][]ident.ID{}
		for _, e := range part {
			if e.State == ResponseReceived {
				if len(ids[e.ConsumerNo]) == 0 {
					consumers = append(consumers, e.ConsumerNo)
				}
				ids[e.ConsumerNo] = append(ids[e.ConsumerNo], e.ID)
			}
		}
		awaited := map[ExchangeKey]bool{}
		for _, k := range consumers {
			err := exchangeHeads(ctx, tx, k, ids[k], func(id ident.ID, h ExchangeHead) {
				awaited[ExchangeKey{k, id}] = h.State == DeliveredReceiver
			})
			if err != nil {
				return err
			}
		}
		for _, e := range part {
			if e.State == ResponseReceived && awaited[ExchangeKey{e.ConsumerNo, e.ID}] {
				if _, err := s.moveExchange(ctx, tx, e, DeliveredReceiver); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// insertExchanges inserts those of the exchanges, which are sorted by key, that have no row.
func (s *Store) insertExchanges(ctx context.Context, q querier, all []*Exchange) (inserted int64, err error) {
	most := s.MaxBatchBytes()
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < maxInList && (n == 0 || size+all[n].Bytes() <= most) {
			size += all[n].Bytes()
			n++
		}
		var args []any
		for _, e := range all[:n] {
			args = append(args, e.columns().fields()...)
		}
		res, err := q.ExecContext(ctx, rows(s.dialect.sql(insertExchanges), n), args...)
		if err != nil {
			return inserted, err
		}
		rows, err := res.RowsAffected()
		if err != nil {
			return inserted, err
		}
		inserted, all = inserted+rows, all[n:]
	}
	return inserted, nil
}

// Exchanges returns the rows of exchanges of a consumer, in any order.
func (s *Store) Exchanges(ctx context.Context, consumerNo uint32, ids []ident.ID) ([]Exchange, error) {
	return readAll[Exchange](ctx, s, "read responses", list(selectExchanges, len(ids)), inArgs(consumerNo, ids)...)
}

// An ExchangeHead is how far an exchange is, without its response.
type ExchangeHead struct {
	State    ExchangeState
	GoesBack bool
	Bytes    int // of the response
}

// Over is that of Exchange.
func (h ExchangeHead) Over() bool {
	return h.State > ResponseReceived || h.State == ResponseReceived && !h.GoesBack
}

// ExchangeHeads returns how far the exchanges of a consumer are that have a row.
func (s *Store) ExchangeHeads(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]ExchangeHead,
	error) {
	out := make(map[ident.ID]ExchangeHead, len(ids))
	for _, part := range chunks(ids, maxInList) {
		err := repeat(ctx, "read states of responses", func(ctx context.Context) error {
			return exchangeHeads(ctx, s.reads, consumerNo, part, func(id ident.ID, h ExchangeHead) { out[id] = h })
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func exchangeHeads(ctx context.Context, q querier, consumerNo uint32, ids []ident.ID,
	take func(ident.ID, ExchangeHead)) error {
	return each(ctx, q, list(selectExchangeHeads, len(ids)), inArgs(consumerNo, ids), func(r *sql.Rows) error {
		var id ident.ID
		var h ExchangeHead
		err := r.Scan(asID{&id}, &h.State, &h.GoesBack, &h.Bytes)
		take(id, h)
		return err
	})
}

// PostExchange stores a response that its receiver posted: in a new row, or in one whose result is
// awaited. ErrDuplicate: the exchange has a response already, or is over.
func (s *Store) PostExchange(ctx context.Context, e Exchange) error {
	return s.run(ctx, transaction{name: "store a posted response"}, func(ctx context.Context, tx *sql.Tx) error {
		n, err := s.moveExchange(ctx, tx, &e, DeliveredReceiver)
		if err != nil || n > 0 {
			return err
		}
		if n, err = s.insertExchanges(ctx, tx, []*Exchange{&e}); err == nil && n == 0 {
			err = ErrDuplicate
		}
		return err
	})
}

// MoveExchange stores what became of an exchange that is in the state from. moved is false where it
// is in another one by now.
func (s *Store) MoveExchange(ctx context.Context, e Exchange, from ExchangeState) (moved bool, err error) {
	err = repeat(ctx, "store a response", func(ctx context.Context) error {
		n, err := s.moveExchange(ctx, s.db, &e, from)
		moved = n > 0
		return err
	})
	return moved, err
}

func (s *Store) moveExchange(ctx context.Context, q querier, e *Exchange, from ExchangeState) (int64, error) {
	res, err := q.ExecContext(ctx, updateExchange, append(e.moved().fields(), e.ConsumerNo, e.ID[:], from)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
