package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Scheduled is a message that is stored before its time, or that is sent again and again. ID is
// that of the schedule; each message that it becomes has an ID of its own. While it waits, its Key
// is taken in the channel.
type Scheduled struct {
	Message
	Status     ScheduleStatus
	DueMs      int64    // of the next message; of a schedule that is over, of the last one
	DelayMs    int64    // that the producer asked for instead of a time; 0: none
	Recurrence string   // text of package schedule, "" for one message
	No         int      // of the message at DueMs, from 0
	MessageID  ident.ID // of the last message sent, zero before the first
	ChangedMs  int64    // of the last change, which has a time of its own; 0: none
	SentBefore int      // messages of the recurrences that it had before

	// FromNow says, of a schedule that is to be stored, that DueMs counts from when it came: a repeat
	// has another one.
	FromNow bool
	// Past says, of a schedule that is to be stored, that its time was past when it came. It is never
	// stored. It may repeat one that is.
	Past bool
}

// asksAlike reports whether two schedules have the same times as their producers wrote them.
func asksAlike(stored, m *Scheduled) bool {
	return stored.Recurrence == m.Recurrence && stored.DelayMs == m.DelayMs && (stored.DueMs == m.DueMs || m.DelayMs > 0 ||
		m.Recurrence != "")
}

// A ScheduleStatus tells whether a schedule still has messages to send.
type ScheduleStatus uint8

// The statuses of a schedule. Their numbers are stored.
const (
	ScheduleWaiting ScheduleStatus = iota
	ScheduleOver
)

var (
	// ErrDispatched means that a schedule is over, or that its one message is due.
	ErrDispatched = errors.New("durable: the scheduled message is due or sent")
	// ErrPast means that the time of a schedule is past, and that it repeats none that is stored.
	ErrPast = errors.New("durable: the time of the scheduled message is past")
	// ErrMoved means that the message of an Occurrence is not stored: its schedule does not wait
	// for that message now. Another broker sent it or is about to, or the schedule was deleted.
	ErrMoved = errors.New("durable: the schedule does not wait for this message")
)

const (
	// The guard of the insert, as a query of its own.
	selectMaySchedule = `
SELECT COUNT(*)
FROM channels c
JOIN nodes n
  ON n.no = ?
WHERE c.no = ?
  AND c.paused = 0
  AND n.token = ?
  AND n.least_version <= ?`

	insertKeys = `
INSERT INTO message_keys (
    channel_no,
    msg_key,
    id
)
VALUES (?, ...)`

	deleteKey = `
DELETE FROM message_keys
WHERE channel_no = ?
  AND msg_key = ?
  AND id = ?`

	deleteScheduled = `
DELETE FROM scheduled
WHERE id = ?`
)

// columns are those of the table scheduled.
func (m *Scheduled) columns() columns {
	return columns{
		{"id", asID{&m.ID}},
		{"channel_no", &m.ChannelNo},
		{"producer_no", &m.ProducerNo},
		{"status", &m.Status},
		{"due_ms", &m.DueMs},
		{"occurrence", &m.No},
		{"message_id", asOptionalID{&m.MessageID}},
		{"msg_key", asOptional{&m.Key}},
		{"recurrence", asBytes{&m.Recurrence}},
		{"priority", &m.Priority},
		{"ttl_ms", &m.TTLMs},
		{"content_type", asBytes{&m.ContentType}},
		{"headers", asBlob{&m.Headers}},
		{"payload", asBlob{&m.Payload}},
		{"addressed", asPositions{&m.Addressed}},
		{"delay_ms", &m.DelayMs},
		{"changed_ms", &m.ChangedMs},
		{"sent_before", &m.SentBefore},
	}
}

// made are the columns of a new row.
func (m *Scheduled) made() columns {
	return m.columns().only("id", "channel_no", "producer_no", "status", "due_ms", "occurrence", "msg_key", "recurrence",
		"priority", "ttl_ms", "content_type", "headers", "payload", "addressed", "delay_ms")
}

var (
	fromScheduled = `
SELECT` + new(Scheduled).columns().names() + `
FROM scheduled
`

	selectScheduledByID  = fromScheduled + `WHERE id IN (?...)`
	selectScheduledByKey = fromScheduled + `WHERE channel_no = ?
  AND msg_key = ?`

	lockScheduled = locking(selectScheduledByID, updateLock)

	insertScheduled = new(Scheduled).made().inserts("scheduled")
)

// Schedule stores schedules with all their fields, in one transaction, and returns one result per
// schedule:
//
//   - nil: it is on disk, also after an earlier call with the same ID;
//   - *DuplicateError: a schedule with the same Key, content, terms and times is stored; ID is its own;
//   - ErrConflict, ErrReused: another message or schedule has the Key;
//   - ErrPast: the schedule is Past, and no other has its Key;
//   - ErrStale: as of Insert;
//   - ErrRejected: the schedule can never be stored;
//   - ErrNotReplicated: as of Insert;
//   - any other error: the schedule is not stored, unless the error is ErrOutcomeUnknown.
func (s *Store) Schedule(ctx context.Context, node NodeLease, batch []*Scheduled) []error {
	errs := make([]error, len(batch))
	var todo, past, behind []int
	earlier := map[keyOf]bool{}
	demanding := slices.ContainsFunc(batch, func(m *Scheduled) bool { return m.Replicated })
	var alone error // nothing is stored that demands a second server where there is none
	if demanding {
		alone = s.Replicates(ctx)
		defer func() { s.proveScheduled(ctx, batch, errs) }()
	}
	for i, m := range batch {
		if errs[i] = storable(&m.Message); errs[i] == nil && m.Replicated {
			errs[i] = alone
		}
		switch {
		case errs[i] != nil:
		case m.Past && earlier[keyOf{m.ChannelNo, m.Key}]: // it may repeat a schedule of this batch
			behind = append(behind, i)
		case m.Past:
			past = append(past, i)
		default:
			todo = append(todo, i)
			earlier[keyOf{m.ChannelNo, m.Key}] = m.Key != ""
		}
	}
	s.schedulePast(ctx, node, batch, past, errs)
	s.scheduleAll(ctx, node, batch, todo, errs)
	s.schedulePast(ctx, node, batch, behind, errs)
	return errs
}

// scheduleAll stores those schedules of a batch.
func (s *Store) scheduleAll(ctx context.Context, node NodeLease, batch []*Scheduled, todo []int, errs []error) {
	if len(todo) == 0 {
		return
	}
	err := s.schedule(ctx, node, batch, todo, errs)
	if err == nil || !s.refusesRow(err) {
		for _, i := range todo {
			if err != nil {
				errs[i] = err
			}
		}
		return
	}
	for _, i := range todo { // each alone, because one of them has a Key that is taken
		errs[i] = s.scheduleOne(ctx, node, batch[i])
	}
}

// refusesRow reports whether err refuses a row, because of its key or of its values.
func (s *Store) refusesRow(err error) bool {
	if s.dialect == sqliteDialect {
		return rejects(err)
	}
	v := classify(err)
	return v == exists || v == bad
}

// schedule stores those schedules of a batch in one transaction.
func (s *Store) schedule(ctx context.Context, node NodeLease, batch []*Scheduled, which []int, errs []error) error {
	// A repeat after a lost answer finds the rows, and scheduleOne recognises them by their IDs.
	return s.run(ctx, transaction{name: "schedule", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		return s.scheduleRows(ctx, tx, node, batch, which, errs)
	})
}

// scheduleRows stores those schedules of a batch.
func (s *Store) scheduleRows(ctx context.Context, tx *sql.Tx, node NodeLease, batch []*Scheduled, which []int,
	errs []error) error {
	if err := maySchedule(ctx, tx, node, batch, which); err != nil {
		return err
	}
	var keys, plans []any
	for _, i := range which {
		m := batch[i]
		switch {
		case m.Idempotent():
			rest, err := s.resolveUses(ctx, tx, []entry{{m.planned(), 0}}, errs[i:i+1])
			if err != nil {
				return err
			}
			if len(rest) == 0 { // it is answered
				continue
			}
			err = exec(ctx, tx, sqliteInsertUse, m.ChannelNo, []byte(m.Key), m.ID[:], m.planned().fingerprint(), m.terms())
			if err != nil {
				return err
			}
		case m.Key != "":
			keys = append(keys, m.ChannelNo, []byte(m.Key), m.ID[:])
		}
		row := *m
		row.Status = ScheduleWaiting
		plans = append(plans, row.made().fields()...)
	}
	if len(plans) == 0 {
		return nil
	}
	if len(keys) > 0 {
		if err := insertRows(ctx, tx, insertKeys, keys); err != nil {
			return err
		}
	}
	return insertRows(ctx, tx, insertScheduled, plans)
}

// maySchedule returns ErrStale where one of the channels takes no schedule of the node.
func maySchedule(ctx context.Context, tx *sql.Tx, node NodeLease, batch []*Scheduled, which []int) error {
	checked := map[uint32]bool{}
	for _, i := range which {
		no := batch[i].ChannelNo
		if checked[no] {
			continue
		}
		checked[no] = true
		var may int
		if err := tx.QueryRowContext(ctx, selectMaySchedule, node.No, no, node.Token[:], node.Known).Scan(&may); err != nil {
			return err
		}
		if may == 0 {
			return ErrStale
		}
	}
	return nil
}

// scheduleOne stores a schedule, or returns what has its Key.
func (s *Store) scheduleOne(ctx context.Context, node NodeLease, m *Scheduled) error {
	errs := []error{nil}
	err := s.schedule(ctx, node, []*Scheduled{m}, []int{0}, errs)
	if err == nil {
		return errs[0]
	}
	if !s.refusesRow(err) {
		return err
	}
	return s.scheduleRefused(ctx, s.reads, m, err)
}

// scheduleRefused returns the result of a schedule whose row the store refuses; err nil: because its Key is taken.
func (s *Store) scheduleRefused(ctx context.Context, q querier, m *Scheduled, err error) error {
	row, e := s.scheduledRow(ctx, q, selectScheduledByID, m.ID[:])
	if errors.Is(e, ErrNotFound) && m.Key != "" {
		row, e = s.scheduledRow(ctx, q, selectScheduledByKey, m.ChannelNo, []byte(m.Key))
	}
	switch {
	case errors.Is(e, ErrNotFound) && s.dialect != sqliteDialect && classify(err) == bad:
		return fmt.Errorf("%w: %w", ErrRejected, withoutValues(err))
	case errors.Is(e, ErrNotFound):
		return ErrConflict // a message has the Key
	case e != nil:
		return e
	case row.ID == m.ID:
		return nil
	}
	repeats, e := s.repeats(ctx, q, &row.Message, &m.Message)
	if e != nil {
		return e
	}
	return takenBy(row.ID, entry{&m.Message, 0}, repeats && asksAlike(row, m))
}

func (s *Store) scheduledRow(ctx context.Context, q querier, query string, args ...any) (m *Scheduled, err error) {
	found, err := s.scheduledRows(ctx, q, list(query, 1), args)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (s *Store) scheduledRows(ctx context.Context, q querier, query string, args []any) (found []*Scheduled,
	err error) {
	err = repeat(ctx, "read scheduled messages", func(ctx context.Context) error {
		rows, err := selectAll[Scheduled](ctx, q, query, args...)
		found = pointersTo(rows)
		return err
	})
	return found, err
}

// ScheduledByID returns a schedule. ErrNotFound: there is none.
func (s *Store) ScheduledByID(ctx context.Context, id ident.ID) (*Scheduled, error) {
	return s.scheduledRow(ctx, s.reads, selectScheduledByID, id[:])
}

// ScheduledByKey returns the schedule with a Key.
func (s *Store) ScheduledByKey(ctx context.Context, channelNo uint32, key string) (*Scheduled, error) {
	return s.scheduledRow(ctx, s.reads, selectScheduledByKey, channelNo, []byte(key))
}

// CancelScheduled deletes a schedule, whose Key is free then. ErrDispatched: it is over, or its one
// message is due by the store's clock. ErrNotFound: there is none.
func (s *Store) CancelScheduled(ctx context.Context, id ident.ID) error {
	return s.run(ctx, transaction{name: "cancel a scheduled message"}, func(ctx context.Context, tx *sql.Tx) error {
		// The lock excludes the insert of the message.
		m, err := selectOne[Scheduled](ctx, tx, list(s.dialect.sql(lockScheduled), 1), id[:])
		if err != nil {
			return orNotFound(err)
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if m.Status != ScheduleWaiting || m.Recurrence == "" && m.DueMs <= now {
			return ErrDispatched
		}
		auditlog.Note(ctx, m, nil)
		return s.dropScheduled(ctx, tx, &m)
	})
}

// dropScheduled deletes a schedule with the reservation of its Key.
func (s *Store) dropScheduled(ctx context.Context, tx *sql.Tx, m *Scheduled) error {
	if m.Key != "" {
		statement := deleteKey
		if m.Idempotent() {
			statement = deleteUse
		}
		if err := exec(ctx, tx, statement, m.ChannelNo, []byte(m.Key), m.ID[:]); err != nil {
			return err
		}
	}
	return exec(ctx, tx, deleteScheduled, m.ID[:])
}

// planned returns the message with a payload that has the times as the producer wrote them, too: an
// Idempotency-Key compares payloads, and terms.
func (m *Scheduled) planned() *Message {
	p := m.Message
	form, ms := "\nscheduled %d %s", m.DueMs
	if m.FromNow {
		form, ms = "\ndelayed %d %s", m.DelayMs
	}
	p.Payload = fmt.Appendf(append([]byte{}, m.Payload...), form, ms, m.Recurrence)
	return &p
}
