package durable_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// A rival is another session with a transaction that has a lock on the key of a message.
type rival struct {
	db *sql.DB
	tx *sql.Tx
}

func startRival(t *testing.T, dsn, key string) *rival {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	tx, err := db.Begin()
	require.NoError(t, err)
	r := &rival{db, tx}
	require.NoError(t, r.insert(key))
	return r
}

func (r *rival) insert(key string) error {
	_, err := r.tx.Exec("INSERT INTO message_keys (channel_no, msg_key, id) VALUES (1, ?, REPEAT('r', 12))", key)
	return err
}

// awaitWaiter waits until another session waits for a lock in this database. It polls slowly,
// because InnoDB answers from a cache that it renews only after a tenth of a second without a read.
func (r *rival) awaitWaiter(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := r.db.QueryRow(`
SELECT COUNT(*)
FROM information_schema.innodb_trx t
JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_state = 'LOCK WAIT'
  AND p.db = DATABASE()`).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, 500*time.Millisecond)
}

// insertBoth inserts two messages with the keys a and b and sends their results.
func insertBoth(t *testing.T, s *durable.Store) chan []error {
	_, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	fates := make(chan []error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for { // waiting makes IDs too old: then new ones, as the broker does
			a := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: "a"}
			b := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: "b"}
			errs := s.Insert(ctx, node, []*durable.Message{b, a})
			if fmt.Sprint(errs[0]) != fmt.Sprint(durable.ErrStale) {
				fates <- errs
				return
			}
		}
	}()
	return fates
}

func requireBothStored(t *testing.T, s *durable.Store, errs []error) {
	require.Equal(t, []error{nil, nil}, errs)
	heads, err := s.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 10)
	require.NoError(t, err)
	require.Len(t, heads, 2)
	for _, key := range []string{"a", "b"} {
		_, err := s.MessageByKey(t.Context(), 1, key)
		require.NoError(t, err)
	}
}

// Error 1213: the server resolves a deadlock by a rollback of the store's transaction.
func TestADeadlockIsRepeatedUntilItIsStoredOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	s := openMySQL(t, dsn)
	r := startRival(t, dsn, "b")
	for i := range 1000 { // the server rolls back the transaction with fewer changes
		require.NoError(t, r.insert(fmt.Sprint("weight ", i)))
	}
	fates := insertBoth(t, s)
	r.awaitWaiter(t)                  // it has a and waits for b
	require.NoError(t, r.insert("a")) // we have b and wait for a: so it was rolled back
	require.NoError(t, r.tx.Rollback())
	requireBothStored(t, s, <-fates)
}

// Error 1205: a lock is not released within the time for which a statement waits.
func TestALockWaitTimeoutIsRepeatedUntilItIsStoredOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	s := openMySQL(t, dsn)
	r := startRival(t, dsn, "b")
	begun := time.Now()
	fates := insertBoth(t, s)
	r.awaitWaiter(t)
	select {
	case errs := <-fates:
		t.Fatal(errs)
	case <-time.After(7 * time.Second): // innodb_lock_wait_timeout of our sessions is 5 s
	}
	r.awaitWaiter(t) // it came back
	require.NoError(t, r.tx.Rollback())
	requireBothStored(t, s, <-fates)
	require.Greater(t, time.Since(begun), 5*time.Second)
}

// Another broker is writing that a job is to be tried again, and that one is dead:
// outcomes of other jobs of the consumer do not wait for it.
func TestOutcomesDoNotWaitForTheJobsOfOthersOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	s := openMySQL(t, dsn)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	tx, err := db.Begin()
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	var outcomes []durable.Outcome
	for i := range 400 {
		id := ids.Next()
		if i == 200 { // in the middle of them
			_, err = tx.Exec("INSERT INTO open_jobs (consumer_no, message_id, priority, attempts, next_ms, changed_ms, "+
				"status_code, error) VALUES (1, ?, 0, 1, 1, 1, 500, '')", id[:])
			require.NoError(t, err)
			_, err = tx.Exec("INSERT INTO dead_jobs (consumer_no, message_id, priority, attempts, died_ms, status_code, "+
				"reason, answer) VALUES (1, ?, 0, 1, 1, 500, '', '')", id[:])
			require.NoError(t, err)
			continue
		}
		outcomes = append(outcomes, durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: 1, ID: id, Attempts: 2,
			AtMs: 1, Tracked: true})
	}
	require.NoError(t, s.Record(t.Context(), outcomes), "it would wait for its whole patience, and fail")
}

// A broker that stalls during an insert locks the row of its number. The broker that takes the
// number then gets a full lease, counted from the release of the lock.
func TestANumberThatWasLockedIsLeasedFromThenOnOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	s := openMySQL(t, dsn)
	old, err := s.LeaseNode(t.Context(), "old", -time.Second) // over at once
	require.NoError(t, err)
	r := startRival(t, dsn, "a")
	_, err = r.tx.Exec("UPDATE nodes SET name = 'standing still' WHERE no = ?", old.No)
	require.NoError(t, err)
	leases := make(chan durable.NodeLease, 1)
	go func() {
		lease, err := s.LeaseNode(context.Background(), "heir", time.Hour)
		if err != nil {
			t.Error(err)
		}
		leases <- lease
	}()
	r.awaitWaiter(t)
	time.Sleep(50 * time.Millisecond) // for a lease that is counted from before to fall short
	var released int64
	require.NoError(t, r.db.QueryRow("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").Scan(&released))
	require.NoError(t, r.tx.Rollback())
	lease := <-leases
	require.Equal(t, old.No, lease.No)
	require.GreaterOrEqual(t, lease.Expires.UnixMilli(), released+time.Hour.Milliseconds())
	nodes, err := s.Nodes(t.Context())
	require.NoError(t, err)
	require.True(t, lease.Expires.Equal(nodes[lease.No].Expires), "%v is stored, %v said", nodes[lease.No].Expires,
		lease.Expires)
}
