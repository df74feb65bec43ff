package durable

import (
	"context"
	"math"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A DeadSelection says which dead letters of a consumer are meant. The zero value of each field but
// ConsumerNo means all.
type DeadSelection struct {
	ConsumerNo     uint32
	HasFingerprint bool
	Fingerprint    cause.Fingerprint
	Reasons        ReasonSet
	FromMs, ToMs   int64 // died in that time, both included, Unix ms
}

// A ReasonSet is a set of reasons, with a bit for each. The zero value has all of them.
type ReasonSet int64

// String is the ReasonCodes of the set, with commas between; "" for all.
func (r ReasonSet) String() string {
	var codes []string
	for i, code := range reasonNames {
		if r&(1<<i) != 0 {
			codes = append(codes, code)
		}
	}
	return strings.Join(codes, ",")
}

// Add adds a reason.
func (r *ReasonSet) Add(reason Reason) { *r |= 1 << reason }

// allReasons has all reasons.
const allReasons ReasonSet = math.MaxInt64

// one reports whether the letters that are meant are those of a range of an index.
func (s *DeadSelection) one() bool { return s.Reasons == 0 && s.FromMs == 0 && s.ToMs == 0 }

// key are the arguments that say which range of an index has the letters.
func (s *DeadSelection) key() []any {
	if s.HasFingerprint {
		return []any{s.ConsumerNo, s.Fingerprint}
	}
	return []any{s.ConsumerNo}
}

// rest are the arguments of the other conditions.
func (s *DeadSelection) rest() []any {
	reasons, to := s.Reasons, s.ToMs
	if reasons == 0 {
		reasons = allReasons
	}
	if to == 0 {
		to = math.MaxInt64
	}
	return []any{s.FromMs, to, reasons}
}

// A deadQuery has the statements of one way through the dead letters of a consumer: by message or, of
// those with one fingerprint, by the index of fingerprints; upwards or downwards.
type deadQuery struct {
	examine string // the last of up to limit rows
	page    string // the letters among them
}

// deadQueries are by fingerprint and by the direction downwards.
var deadQueries = [2][2]deadQuery{
	{newDeadQuery("", false), newDeadQuery("", true)},
	{newDeadQuery("\n  AND d.fingerprint = ?", false), newDeadQuery("\n  AND d.fingerprint = ?", true)},
}

func newDeadQuery(fingerprint string, down bool) deadQuery {
	order, last, from, through := "", "MAX", ">=", "<="
	if down {
		order, last, from, through = " DESC", "MIN", "<=", ">="
	}
	key := `
FROM dead_jobs d
WHERE d.consumer_no = ?` + fingerprint + `
  AND d.message_id ` + from + ` ?`
	return deadQuery{
		examine: `
SELECT
    COUNT(*),
    ` + last + `(message_id)
FROM (
    SELECT d.message_id` + key + `
    ORDER BY d.message_id` + order + `
    LIMIT ?
) e`,
		page: `
SELECT` + new(DeadJob).columns().of("d").names() + key + `
  AND d.message_id ` + through + ` ?
  AND d.disposal <> 2
  AND d.died_ms >= ?
  AND d.died_ms <= ?
  AND ((1 << d.reason_code) & ?) <> 0
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id` + order + `
LIMIT ?`,
	}
}

// deadExamined is the number of dead letters that one call of DeadLetters examines.
const deadExamined = 20_000

// DeadLetters returns up to limit dead letters that are meant, in the order of their messages, from the
// message from on; with down in the reverse order. It examines a bounded number of dead letters: it
// returns next, where the next page begins, zero at the end, and the page may be short before it.
func (s *Store) DeadLetters(ctx context.Context, of DeadSelection, from ident.ID, down bool, limit int) (page []DeadJob,
	next ident.ID, err error) {
	q := &deadQueries[btoi(of.HasFingerprint)][btoi(down)]
	through, all := ident.Max(), true
	if down {
		through = ident.ID{}
	}
	if !of.one() {
		var n int
		var last []byte
		err = repeat(ctx, "examine dead letters", func(ctx context.Context) error {
			return s.reads.QueryRowContext(ctx, q.examine, append(of.key(), from[:], deadExamined)...).Scan(&n, &last)
		})
		if err != nil || len(last) != ident.Size {
			return nil, ident.ID{}, err
		}
		through, all = ident.ID(last), n < deadExamined
	}
	args := append(append(append(of.key(), from[:], through[:]), of.rest()...), limit+1)
	page, err = readAll[DeadJob](ctx, s, "list dead letters", q.page, args...)
	switch {
	case err != nil:
		return nil, ident.ID{}, err
	case len(page) > limit:
		return page[:limit], page[limit].ID, nil
	case all:
		return page, ident.ID{}, nil
	case down:
		return page, through.Previous(), nil
	}
	return page, through.Next(), nil
}

var selectDeadAmong = `
SELECT` + new(deadRow).columns().names() + `
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND disposal <> 2
  AND died_ms >= ?
  AND died_ms <= ?
  AND ((1 << reason_code) & ?) <> 0
  AND (? = 0 OR fingerprint = ?)
ORDER BY message_id`

const (
	sumDeadGroups = `
SELECT COALESCE(SUM(jobs), 0)
FROM dead_groups
WHERE consumer_no = ?
  AND (? = 0 OR fingerprint = ?)`

	countDeadLetters = `
SELECT
    COUNT(*),
    COALESCE(SUM(e.disposal <> 2 AND e.died_ms >= ? AND e.died_ms <= ? AND ((1 << e.reason_code) & ?) <> 0), 0)
FROM (
    SELECT
        d.disposal,
        d.died_ms,
        d.reason_code
    FROM dead_jobs d
    WHERE d.consumer_no = ?`

	countDeadEnd = `
    ORDER BY d.message_id
    LIMIT ?
) e`
)

var countDeadQueries = [2]string{countDeadLetters + countDeadEnd, countDeadLetters + `
      AND d.fingerprint = ?` + countDeadEnd}

// DeadAmong returns those of the messages whose job is a dead letter that is meant. They have no reason.
func (s *Store) DeadAmong(ctx context.Context, of DeadSelection, ids []ident.ID) (out []DeadHead, err error) {
	for _, part := range chunks(ids, maxInList) {
		args := append(append(inArgs(of.ConsumerNo, part), of.rest()...), of.HasFingerprint, of.Fingerprint)
		found, err := readAll[deadRow](ctx, s, "find dead letters", list(selectDeadAmong, len(part)), args...)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			out = append(out, DeadHead{ID: d.ID, DiedMs: d.DiedMs, Disposal: d.Disposal})
		}
	}
	return out, nil
}

// deadCounted is the number of dead letters that one call of CountDead examines.
const deadCounted = 100_000

// CountDead returns how many dead letters are meant. Those of a whole DLQ or group are counters; else it
// examines a bounded number, and approximate says that there are more.
func (s *Store) CountDead(ctx context.Context, of DeadSelection) (n int64, approximate bool, err error) {
	err = repeat(ctx, "count dead letters", func(ctx context.Context) error {
		if of.one() {
			return s.reads.QueryRowContext(ctx, sumDeadGroups, of.ConsumerNo, of.HasFingerprint, of.Fingerprint).Scan(&n)
		}
		var examined int
		args := append(append(of.rest(), of.key()...), deadCounted)
		err := s.reads.QueryRowContext(ctx, countDeadQueries[btoi(of.HasFingerprint)], args...).Scan(&examined, &n)
		approximate = examined == deadCounted
		return err
	})
	return n, approximate, err
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
