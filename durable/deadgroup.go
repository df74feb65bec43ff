package durable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The dead letters of a consumer by cause. A dead letter has the fingerprint of its cause from its death
// on, and a row of dead_groups counts those with one fingerprint that are in the DLQ. The transaction
// that writes or removes rows of dead_jobs changes the counters as its last step, so they are right after
// each crash, and their locks are short. A dead letter that a late delivery outranks counts until its row
// is removed.

// maxDeadGroups is the number of groups of one consumer from which a new cause counts as cause.Other.
const maxDeadGroups = 100

// maxSample bounds the error that a group shows, bytes.
const maxSample = 255

// A DeadGroup is the dead letters of one consumer that have one cause.
type DeadGroup struct {
	Fingerprint     cause.Fingerprint
	Jobs            int64
	FirstMs, LastMs int64    // Unix ms of the first death since the group was empty, and of the last one
	StatusCode      int      // of the last one
	Sample          string   // error of the last one
	SampleID        ident.ID // message of a job in the group
}

func (g *DeadGroup) columns() columns {
	return columns{
		{"fingerprint", &g.Fingerprint},
		{"jobs", &g.Jobs},
		{"first_ms", &g.FirstMs},
		{"last_ms", &g.LastMs},
		{"status_code", &g.StatusCode},
		{"sample", asBytes{&g.Sample}},
		{"sample_id", asID{&g.SampleID}},
	}
}

var (
	selectDeadGroups = `
SELECT` + new(DeadGroup).columns().names() + `
FROM dead_groups
WHERE consumer_no = ?
ORDER BY jobs DESC, fingerprint
LIMIT ?`

	joinDeadGroup = statement{
		mysql: insertDeadGroup + `
ON DUPLICATE KEY UPDATE
    jobs = jobs + VALUES(jobs),
    first_ms = LEAST(first_ms, VALUES(first_ms)),
    last_ms = GREATEST(last_ms, VALUES(last_ms)),
    status_code = VALUES(status_code),
    sample = VALUES(sample),
    sample_id = VALUES(sample_id)`,
		sqlite: insertDeadGroup + `
ON CONFLICT DO UPDATE SET
    jobs = jobs + excluded.jobs,
    first_ms = MIN(first_ms, excluded.first_ms),
    last_ms = MAX(last_ms, excluded.last_ms),
    status_code = excluded.status_code,
    sample = excluded.sample,
    sample_id = excluded.sample_id`,
	}

	takeDeadRows = locking(`
SELECT`+new(deadRow).columns().names()+`
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id`, updateLock)
)

const (
	insertDeadGroup = `
INSERT INTO dead_groups (
    consumer_no,
    fingerprint,
    jobs,
    first_ms,
    last_ms,
    status_code,
    sample,
    sample_id
)
VALUES (?, ...)`

	selectKnownGroups = `
SELECT fingerprint
FROM dead_groups
WHERE consumer_no = ?
  AND fingerprint IN (?...)`

	countDeadGroups = `
SELECT COUNT(*)
FROM dead_groups
WHERE consumer_no = ?`

	leaveDeadGroup = `
UPDATE dead_groups
SET jobs = jobs - ?
WHERE consumer_no = ?
  AND fingerprint = ?`

	deleteDeadGroup = `
DELETE FROM dead_groups
WHERE consumer_no = ?
  AND fingerprint = ?
  AND jobs <= 0`

	// The newest dead letter takes the place of one that has left.
	renewSample = `
UPDATE dead_groups
SET sample_id = COALESCE((
    SELECT d.message_id
    FROM dead_jobs d
    WHERE d.consumer_no = dead_groups.consumer_no
      AND d.fingerprint = dead_groups.fingerprint
      AND d.disposal <> 2
    ORDER BY d.message_id DESC
    LIMIT 1
), sample_id)
WHERE consumer_no = ?
  AND fingerprint = ?
  AND sample_id IN (?...)`
)

// DeadGroups returns up to limit groups of dead letters of a consumer, the largest ones first.
func (s *Store) DeadGroups(ctx context.Context, consumerNo uint32, limit int) ([]DeadGroup, error) {
	return readAll[DeadGroup](ctx, s, "list groups of dead letters", selectDeadGroups, consumerNo, limit)
}

// Fingerprint is the cause of the death.
func (o *Outcome) Fingerprint() cause.Fingerprint {
	if !o.Reason.Attempted() {
		return cause.Of(o.Reason.String(), o.StatusCode, o.Error)
	}
	return cause.OfAttempt(o.StatusCode, cmp.Or(o.Cause, o.Error))
}

// A groupKey names a group.
type groupKey struct {
	consumerNo  uint32
	fingerprint cause.Fingerprint
}

func (k groupKey) compare(other groupKey) int {
	return cmp.Or(cmp.Compare(k.consumerNo, other.consumerNo), cmp.Compare(k.fingerprint, other.fingerprint))
}

// grouped returns the groups of jobs that die, which are sorted. The number of groups is bounded but for
// those that two brokers make at one moment.
func grouped(ctx context.Context, tx *sql.Tx, dead []Outcome) ([]cause.Fingerprint, error) {
	out := make([]cause.Fingerprint, 0, len(dead))
	for _, part := range byConsumer(dead) {
		wanted := map[cause.Fingerprint]bool{} // true: there is such a group
		args := []any{part[0].ConsumerNo}
		for i := range part {
			f := part[i].Fingerprint()
			out = append(out, f)
			if _, again := wanted[f]; !again {
				wanted[f] = false
				args = append(args, f)
			}
		}
		err := each(ctx, tx, list(selectKnownGroups, len(wanted)), args, func(r *sql.Rows) error {
			var f cause.Fingerprint
			err := r.Scan(&f)
			wanted[f] = true
			return err
		})
		if err != nil {
			return nil, err
		}
		groups := -1
		for i, f := range out[len(out)-len(part):] {
			if wanted[f] {
				continue
			}
			if groups < 0 {
				if err := tx.QueryRowContext(ctx, countDeadGroups, part[0].ConsumerNo).Scan(&groups); err != nil {
					return nil, err
				}
			}
			if groups >= maxDeadGroups {
				out[len(out)-len(part)+i] = cause.Other
				continue
			}
			wanted[f], groups = true, groups+1
		}
	}
	return out, nil
}

// errDiedBefore means that some of several jobs had been dead.
var errDiedBefore = errors.New("a job was dead before")

// buryAll stores dead letters, and returns how their groups grow. A job that is dead stays as it is and
// does not count again: the server says how many rows of an INSERT are new, so with more than one of them
// buryAll returns errDiedBefore where it cannot tell which ones are, and singly inserts each alone.
func (s *Store) buryAll(ctx context.Context, tx *sql.Tx, dead []Outcome, counted map[jobKey]counts,
	singly bool) (map[groupKey]*DeadGroup, error) {
	groups, err := grouped(ctx, tx, dead)
	if err != nil {
		return nil, err
	}
	insert, most := s.dialect.sql(insertDeadJobs), maxInList
	if singly {
		most = 1
	}
	joined := map[groupKey]*DeadGroup{}
	for len(dead) > 0 {
		n := min(len(dead), most)
		var args []any
		for i := range dead[:n] {
			o := &dead[i]
			c := counted[jobKey{o.ConsumerNo, o.ID}]
			args = append(args, o.ConsumerNo, o.ID[:], o.Priority, o.Attempts, o.AtMs, o.StatusCode, note(o.Error),
				head(o.Answer), o.Reason, c.redrives, o.disposal(), c.leasesLost+o.lost(), c.givenBack, []byte(o.Worker), groups[i])
		}
		res, err := tx.ExecContext(ctx, rows(insert, n), args...)
		if err != nil {
			return nil, err
		}
		added, err := res.RowsAffected()
		switch {
		case err != nil:
			return nil, err
		case added == int64(n):
			for i := range dead[:n] {
				if dead[i].disposal() != Discarded {
					join(joined, &dead[i], groups[i])
				}
			}
		case n > 1 && added > 0:
			return nil, errDiedBefore
		}
		dead, groups = dead[n:], groups[n:]
	}
	return joined, nil
}

// join adds a dead letter to its group.
func join(joined map[groupKey]*DeadGroup, o *Outcome, f cause.Fingerprint) {
	k := groupKey{o.ConsumerNo, f}
	g := joined[k]
	if g == nil {
		g = &DeadGroup{Fingerprint: f, FirstMs: o.AtMs}
		joined[k] = g
	}
	g.Jobs++
	g.FirstMs = min(g.FirstMs, o.AtMs)
	if o.AtMs >= g.LastMs {
		g.LastMs, g.StatusCode, g.Sample, g.SampleID = o.AtMs, o.StatusCode, cmp.Or(o.Cause, o.Error), o.ID
	}
}

// joinGroups counts dead letters.
func (s *Store) joinGroups(ctx context.Context, tx *sql.Tx, joined map[groupKey]*DeadGroup) error {
	for _, k := range sortedGroups(joined) {
		g := joined[k]
		err := insertRows(ctx, tx, s.dialect.sql(joinDeadGroup), []any{k.consumerNo, g.Fingerprint, g.Jobs, g.FirstMs,
			g.LastMs, g.StatusCode, shortened(g.Sample), g.SampleID[:]})
		if err != nil {
			return err
		}
	}
	return nil
}

func sortedGroups[V any](groups map[groupKey]V) []groupKey {
	keys := make([]groupKey, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, groupKey.compare)
	return keys
}

// shortened is the error of a group as it is stored.
func shortened(text string) []byte { return noteOf(text, maxSample) }

// A deadRow is what a dead letter counts for.
type deadRow struct {
	ID          ident.ID
	DiedMs      int64
	Fingerprint cause.Fingerprint
	Disposal    Disposal
}

func (d *deadRow) columns() columns {
	return columns{
		{"message_id", asID{&d.ID}},
		{"died_ms", &d.DiedMs},
		{"fingerprint", &d.Fingerprint},
		{"disposal", &d.Disposal},
	}
}

// leaveGroups counts dead letters of a consumer no longer, whose rows are removed, or will be removed
// from the DLQ, in this transaction and were locked before.
func leaveGroups(ctx context.Context, tx *sql.Tx, consumerNo uint32, left []deadRow) error {
	by := map[groupKey][]ident.ID{}
	for _, d := range left {
		if d.Disposal != Discarded { // then it has left before
			k := groupKey{consumerNo, d.Fingerprint}
			by[k] = append(by[k], d.ID)
		}
	}
	for _, k := range sortedGroups(by) {
		if err := exec(ctx, tx, leaveDeadGroup, len(by[k]), consumerNo, k.fingerprint); err != nil {
			return err
		}
		if err := exec(ctx, tx, deleteDeadGroup, consumerNo, k.fingerprint); err != nil {
			return err
		}
		for _, ids := range chunks(by[k], maxInList) {
			args := []any{consumerNo, k.fingerprint}
			if err := exec(ctx, tx, list(renewSample, len(ids)), append(args, inArgs(nil, ids)[1:]...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeDead locks and returns those of the jobs that have a row.
func (s *Store) takeDead(ctx context.Context, tx *sql.Tx, consumerNo uint32, ids []ident.ID) ([]deadRow, error) {
	return selectAll[deadRow](ctx, tx, list(s.dialect.sql(takeDeadRows), len(ids)), inArgs(consumerNo, ids)...)
}

// removeRows deletes the rows that jobs of a consumer have in a table.
func (s *Store) removeRows(ctx context.Context, tx *sql.Tx, table jobTable, consumerNo uint32, ids []ident.ID) error {
	if table != deadJobs {
		return exec(ctx, tx, list(table.remove, len(ids)), inArgs(consumerNo, ids)...)
	}
	left, err := s.takeDead(ctx, tx, consumerNo, ids)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := exec(ctx, tx, list(table.remove, len(ids)), inArgs(consumerNo, ids)...); err != nil {
		return err
	}
	return leaveGroups(ctx, tx, consumerNo, left)
}
