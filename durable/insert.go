package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Insert stores a batch, each part of up to 1024 rows and MaxBatchBytes in one
// transaction, and returns one result per message:
//
//   - nil: the message is on disk. A message that was stored before with the same ID and
//     content is also nil, so a batch may be inserted again after ErrOutcomeUnknown;
//   - *DuplicateError: the channel, or an earlier message of the batch, has this Key with
//     the same producer, priority, content type, headers, payload and terms;
//   - ErrConflict: the channel has another message under this Key;
//   - ErrReused: the same, where the Key is an Idempotency-Key. There *DuplicateError means that
//     payload and terms are the same;
//   - ErrStale: the caller refreshes the catalogue or the lease, takes new IDs and inserts
//     again;
//   - ErrRejected: this message can never be stored; the others are not affected;
//   - ErrNotReplicated: the message demands a second server, and may be stored. A nil or a
//     *DuplicateError of such a message says that a second server has it;
//   - ErrMoved: the schedule of the message does not wait for it;
//   - ErrOutcomeUnknown: ctx ended before the server could be asked;
//   - any other error: the message is not stored.
//
// Insert neither changes nor keeps batch. Valid rows are stored whatever happens to the
// others, except that ErrStale applies to a whole part.
func (s *Store) Insert(ctx context.Context, node NodeLease, batch []*Message) []error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	errs := make([]error, len(batch))
	todo := make([]entry, 0, len(batch))
	for i, m := range batch {
		if errs[i] = storable(m); errs[i] == nil {
			todo = append(todo, entry{m, i})
		}
	}
	todo, scheduled := splitScheduled(todo)
	slices.SortFunc(scheduled, byKey)
	for _, part := range s.parts(scheduled) {
		s.insertOccurrences(ctx, node, part, errs)
	}
	demanding := slices.ContainsFunc(todo, func(e entry) bool { return e.Replicated })
	// A batch needs one round, unless a key occurs twice in it.
	for len(todo) > 0 {
		now, later, first := distinct(todo)
		slices.SortFunc(now, byKey)
		plain, replicated := now, []entry(nil)
		if demanding {
			plain, replicated = splitReplicated(now)
		}
		for _, part := range append(s.parts(plain), s.parts(replicated)...) {
			switch {
			case s.dialect != sqliteDialect:
				s.insertMySQL(ctx, node, part, errs)
			case part[0].Replicated:
				spread(part, errs, fmt.Errorf("%w: the embedded store has no replica", ErrNotReplicated))
			default:
				s.insertSQLite(ctx, node, part, errs)
			}
		}
		again, contested := resolveRepeated(later, first, errs)
		todo = append(again, s.resolveContested(ctx, contested, errs)...)
	}
	if demanding {
		s.proveFound(ctx, batch, errs)
	}
	s.checkBatch(ctx, batch, errs)
	return errs
}

type channelKey struct {
	channel uint32
	key     string
}

// distinct splits entries into now, which may be inserted together, and later, whose keys
// occur in now. first maps each such key to its entry in now.
func distinct(all []entry) (now, later []entry, first map[channelKey]entry) {
	if !slices.ContainsFunc(all, func(e entry) bool { return e.Key != "" }) {
		return all, nil, nil
	}
	first = make(map[channelKey]entry, len(all))
	for _, e := range all {
		k := channelKey{e.ChannelNo, e.Key}
		if _, used := first[k]; used && e.Key != "" {
			later = append(later, e)
			continue
		}
		first[k] = e
		now = append(now, e)
	}
	return now, later, first
}

// resolveRepeated sets the results of messages whose key occurs earlier in the batch. It
// returns two groups without a result. The messages of again may be inserted, because the
// earlier message was rejected. For the messages of contested the key was taken before the
// batch: a stored message has it, and that message may equal them.
func resolveRepeated(later []entry, first map[channelKey]entry, errs []error) (again, contested []entry) {
	var dup *DuplicateError
	for _, e := range later {
		f := first[channelKey{e.ChannelNo, e.Key}]
		switch err := errs[f.i]; {
		case err == nil, errors.Is(err, errFound):
			errs[e.i] = takenBy(f.ID, e, same(f.Message, e.Message) && sameTerms(f.Message, e.Message))
		case errors.As(err, &dup):
			errs[e.i] = takenBy(dup.ID, e, same(f.Message, e.Message) && sameTerms(f.Message, e.Message))
		case errors.Is(err, ErrConflict), errors.Is(err, ErrReused):
			contested = append(contested, e)
		case errors.Is(err, ErrRejected):
			again = append(again, e)
		default: // the reason of the first message applies to this one
			errs[e.i] = err
		}
	}
	return again, contested
}

// resolveContested sets the results of messages whose key was taken before the batch. One
// read serves all of them, since a batch may have many messages of one key. It returns the
// messages whose key is free by now.
func (s *Store) resolveContested(ctx context.Context, contested []entry, errs []error) (rest []entry) {
	if len(contested) == 0 {
		return nil
	}
	resolve := func(ctx context.Context) (err error) {
		rest, err = s.resolve(ctx, s.db, contested, errs)
		return err
	}
	if s.dialect == sqliteDialect {
		resolve = func(ctx context.Context) (err error) {
			rest, err = s.resolveSQLite(ctx, contested, errs)
			return err
		}
	}
	if err := repeat(ctx, "insert", resolve); err != nil {
		spread(contested, errs, err)
		return nil
	}
	markFound(contested, rest, errs)
	return rest
}

// parts cuts sorted entries into transactions. A message above MaxBatchBytes gets a
// transaction of its own.
func (s *Store) parts(all []entry) [][]entry {
	var out [][]entry
	limit := s.MaxBatchBytes()
	start, size := 0, 0
	for i, e := range all {
		n := len(e.Payload) + len(e.Headers) + len(e.Key) + len(e.ContentType) + 2*(len(e.Addressed)+len(e.LeftOut)) + 100
		if i > start && (size+n > limit || i-start >= maxBatchRows) {
			out = append(out, all[start:i])
			start, size = i, 0
		}
		size += n
	}
	if start < len(all) {
		out = append(out, all[start:])
	}
	return out
}

// splitReplicated returns the entries that demand nothing, and those that demand a second server,
// whose transactions are their own: without the proof they are not even sent.
func splitReplicated(all []entry) (plain, replicated []entry) {
	for _, e := range all {
		if e.Replicated {
			replicated = append(replicated, e)
		} else {
			plain = append(plain, e)
		}
	}
	return plain, replicated
}
