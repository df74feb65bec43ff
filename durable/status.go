package durable

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A StatusKey identifies an event: its time, message, consumer, kind and attempt. It sorts by time.
type StatusKey [24]byte

func (o *Outcome) statusKey(kind StatusKind) (key StatusKey) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(o.AtMs, 0)))
	copy(key[:6], ms[2:])
	copy(key[6:18], o.ID[:])
	binary.BigEndian.PutUint32(key[18:22], o.ConsumerNo)
	key[22], key[23] = byte(kind), byte(o.Attempts)
	return key
}

// A StatusEvent is a stored event that no batch has yet.
type StatusEvent struct {
	Key        StatusKey
	Attempt    int
	StatusCode int
	Reason     Reason
}

// AtMs is the time of the event, Unix ms.
func (e *StatusEvent) AtMs() int64 { return int64(binary.BigEndian.Uint64(e.Key[:8]) >> 16) }

// ID is the message that the event is about.
func (e *StatusEvent) ID() ident.ID { return ident.ID(e.Key[6:18]) }

// ConsumerNo is the consumer that the event is about.
func (e *StatusEvent) ConsumerNo() uint32 { return binary.BigEndian.Uint32(e.Key[18:22]) }

// Kind is what happened.
func (e *StatusEvent) Kind() StatusKind { return StatusKind(e.Key[22]) }

// A StatusBatch is a batch of events on its way to its producer.
type StatusBatch struct {
	ID         ident.ID
	ProducerNo uint32
	Body       []byte
}

func (e *StatusEvent) columns() columns {
	return columns{
		{"event_key", asFixed(e.Key[:])},
		{"attempt", &e.Attempt},
		{"status_code", &e.StatusCode},
		{"reason_code", &e.Reason},
	}
}

func (b *StatusBatch) columns() columns {
	return columns{
		{"id", asID{&b.ID}},
		{"producer_no", &b.ProducerNo},
		{"body", &b.Body},
	}
}

var (
	insertStatusEvents = ignoring(`
INSERT INTO status_events (
    producer_no,` + new(StatusEvent).columns().names() + `
)
VALUES (?, ...)`)

	selectStatusEvents = `
SELECT` + new(StatusEvent).columns().names() + `
FROM status_events
WHERE producer_no = ?
ORDER BY event_key
LIMIT ?`

	insertStatusBatch = new(StatusBatch).columns().insert("status_batches")

	selectStatusBatches = `
SELECT` + new(StatusBatch).columns().names() + `
FROM status_batches
WHERE id > ?
ORDER BY id
LIMIT ?`
)

const (
	selectNextStatus = `
SELECT COALESCE(MIN(producer_no), 0)
FROM status_events
WHERE producer_no > ?`

	deleteStatusEvents = `
DELETE FROM status_events
WHERE producer_no = ?
  AND event_key IN (?...)`

	deleteStatusBatch = `
DELETE FROM status_batches
WHERE id = ?`
)

// recordStatus stores the events of outcomes. Their keys make a repetition harmless until a batch
// has them; after that, a repetition repeats them.
func (s *Store) recordStatus(ctx context.Context, tx *sql.Tx, outcomes []Outcome) error {
	type row struct {
		o   *Outcome
		key StatusKey
	}
	var all []row
	for i := range outcomes {
		for _, kind := range []StatusKind{StatusDelivered, StatusFailed, StatusDead} {
			if outcomes[i].Notices&kind != 0 {
				all = append(all, row{&outcomes[i], outcomes[i].statusKey(kind)})
			}
		}
	}
	slices.SortFunc(all, func(a, b row) int { // two brokers take the locks in the same order
		return cmp.Or(cmp.Compare(a.o.ProducerNo, b.o.ProducerNo), bytes.Compare(a.key[:], b.key[:]))
	})
	for _, part := range chunks(all, maxInList) {
		args := make([]any, 0, 5*len(part))
		for i := range part {
			r := &part[i]
			args = append(args, r.o.ProducerNo, r.key[:], r.o.Attempts, r.o.StatusCode, r.o.Reason)
		}
		if err := insertRows(ctx, tx, s.dialect.sql(insertStatusEvents), args); err != nil {
			return err
		}
	}
	return nil
}

// NextStatusProducer returns the smallest producer number above after that has events, 0 without one.
func (s *Store) NextStatusProducer(ctx context.Context, after uint32) (no uint32, err error) {
	err = repeat(ctx, "find status events", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectNextStatus, after).Scan(&no)
	})
	return no, err
}

// StatusEvents returns up to limit events of a producer, the oldest first.
func (s *Store) StatusEvents(ctx context.Context, producerNo uint32, limit int) ([]StatusEvent, error) {
	return readAll[StatusEvent](ctx, s, "read status events", selectStatusEvents, producerNo, limit)
}

// errTaken ends a transaction whose events another one has taken.
var errTaken = errors.New("durable: status events are taken")

// BatchStatus moves events into a batch, all or none: it returns false where another call has taken
// one of them. A batch without a body is dropped. The batch keeps its ID and its body until
// FinishStatus, so a broker that dies between the two repeats the same batch.
func (s *Store) BatchStatus(ctx context.Context, b StatusBatch, events []StatusEvent) (bool, error) {
	err := s.run(ctx, transaction{name: "batch status events"}, func(ctx context.Context, tx *sql.Tx) error {
		var taken int64
		for _, part := range chunks(events, deletedAtOnce) {
			args := make([]any, 0, 1+len(part))
			args = append(args, b.ProducerNo)
			for i := range part {
				args = append(args, part[i].Key[:])
			}
			res, err := tx.ExecContext(ctx, list(deleteStatusEvents, len(part)), args...)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			taken += n
		}
		if taken != int64(len(events)) {
			return errTaken
		}
		if b.Body == nil {
			return nil
		}
		return exec(ctx, tx, insertStatusBatch, b.columns().fields()...)
	})
	if errors.Is(err, errTaken) {
		return false, nil
	}
	return err == nil, err
}

// StatusBatches returns up to limit batches whose IDs are above after, in their order.
func (s *Store) StatusBatches(ctx context.Context, after ident.ID, limit int) ([]StatusBatch, error) {
	return readAll[StatusBatch](ctx, s, "read status batches", selectStatusBatches, after[:], limit)
}

// FinishStatus ends a batch that has arrived.
func (s *Store) FinishStatus(ctx context.Context, id ident.ID) error {
	return repeat(ctx, "finish a status batch", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteStatusBatch, id[:])
	})
}

// sender are the columns of a message that say who it is from.
func (m *Message) sender() columns {
	return columns{{"id", asID{&m.ID}}, {"producer_no", &m.ProducerNo}, {"msg_key", asBytes{&m.Key}}}
}

var selectSenders = `
SELECT` + new(Message).sender().names() + `
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

// Senders returns the messages of a channel among ids, in order of the IDs. They have only their ID,
// ProducerNo and Key.
func (s *Store) Senders(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Message, error) {
	var out []Message
	for _, part := range chunks(ids, maxInList) {
		found, err := readOf(ctx, s, "read the producers of messages", (*Message).sender, list(selectSenders, len(part)),
			inArgs(channelNo, part)...)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			m.ChannelNo = channelNo
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Message) int { return a.ID.Compare(b.ID) })
	return out, nil
}
