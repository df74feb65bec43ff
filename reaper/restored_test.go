package reaper

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var errNoStore = errors.New("test: the store does not answer")

// An interrupted store calls a function before a round knows the messages, and may refuse to forget
// watermarks.
type interrupted struct {
	Store
	before  func()
	refuses bool
}

func (s *interrupted) LatestMessages(ctx context.Context, after uint32, limit int) ([]durable.Latest, error) {
	if s.before != nil {
		defer s.before()
	}
	return s.Store.LatestMessages(ctx, after, limit)
}

func (s *interrupted) ForgetWatermarks(ctx context.Context) error {
	if s.refuses {
		return errNoStore
	}
	return s.Store.ForgetWatermarks(ctx)
}

// loseOutcomes sets all jobs back to open in the store, as a backup that has none of the outcomes.
func (r *rig) loseOutcomes() {
	r.t.Helper()
	for _, table := range []string{"deliveries", "marks", "books"} {
		r.exec("DELETE FROM " + table)
	}
}

// exec runs a statement of a person.
func (r *rig) exec(statement string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(r.folder, "penstock.db")+"?_pragma=busy_timeout(60000)")
	require.NoError(r.t, err)
	defer db.Close()
	_, err = db.Exec(statement)
	require.NoError(r.t, err)
}

func (r *rig) marks() map[uint32]ident.ID {
	r.t.Helper()
	marks, err := r.store.Watermarks(r.t.Context())
	require.NoError(r.t, err)
	return marks
}

// Jobs that were settled after the backup are open in the restored store. They are below the
// watermark that the broker remembers, and that its last round has saved once more.
func TestAfterARestorationJobsBelowTheWatermarkAreOffered(t *testing.T) {
	store := &interrupted{refuses: true}
	r := newRig(t, 100, func(o *Options) { store.Store, o.Store = o.Store, store })
	ids := r.publish(0, 0, 0)
	r.round()
	r.deliver(ids...)
	r.round()
	require.NoError(t, r.advanceWatermarks(t.Context()))
	require.Equal(t, ids[2], r.marks()[r.consumer.No])
	r.loseOutcomes()
	_, err := r.store.SaveWatermarks(t.Context(), durable.Clock{}, []durable.Settled{{ConsumerNo: r.consumer.No,
		Through: ids[2], Accepted: 3, Delivered: 3}})
	require.NoError(t, err)

	r.Restored()
	_, err = r.reconcile(t.Context())
	require.ErrorIs(t, err, errNoStore, "nothing is read before the watermarks are gone")
	require.ErrorIs(t, r.advanceWatermarks(t.Context()), errNoStore)
	store.refuses = false
	r.round()
	require.Empty(t, r.marks())
	require.Equal(t, ids, idsOf(r.claim(10, 1e9)))
	require.NoError(t, r.advanceWatermarks(t.Context()))
	require.Empty(t, r.marks(), "the jobs are open")
	r.deliver(ids...)
	require.NoError(t, r.advanceWatermarks(t.Context()))
	require.Equal(t, ids[2], r.marks()[r.consumer.No])
}

// A round that began before the restoration saves nothing after it.
func TestARoundOfTheFormerHistorySavesNoWatermark(t *testing.T) {
	store := &interrupted{}
	r := newRig(t, 100, func(o *Options) { store.Store, o.Store = o.Store, store })
	ids := r.publish(0, 0)
	r.round()
	r.deliver(ids...)
	r.round()
	history := r.history()
	store.before = r.Restored
	require.NoError(t, r.advanceWatermarks(t.Context()))
	require.Empty(t, r.marks())
	saved, err := r.inHistory(t.Context(), history, func() error { return errNoStore })
	require.NoError(t, err, "it is not called")
	require.False(t, saved)
	r.advanced(history, map[uint32]ident.ID{r.consumer.No: ids[1]})
	require.Empty(t, r.scanStates)
}

// A consumer that comes from another broker is scanned from the watermark that is stored, even if
// this broker remembers a later one.
func TestAConsumerOfAnotherBrokerHasItsStoredWatermark(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0)
	r.scanStates[r.consumer.No] = &scanState{settled: ids[0]}
	r.owned = false
	r.round()
	r.PeersChanged()
	r.owned = true
	r.round()
	require.Equal(t, ids, idsOf(r.claim(10, 1e9)))
}

func TestThePurgeBeginsAgainAfterARestoration(t *testing.T) {
	r, p := newRetention(t, 2)
	ids := r.publish(0)
	p.passed[r.channel.No], p.emptied[r.channel.No] = ids[0], true
	r.Restored()
	require.NoError(t, p.round(t.Context()))
	require.Empty(t, p.emptied)
}

// An outcome of the former history that Redis hears of after the scan takes a job away that is open.
func TestAJobThatIsAcknowledgedAfterARestorationIsOfferedAgain(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0)
	r.Restored()
	r.round()
	leases := r.claim(10, 1e9)
	require.Equal(t, ids, idsOf(leases))
	_, err := r.queue.AckLeases(t.Context(), r.consumer.No, leases)
	require.NoError(t, err)
	r.round()
	require.Empty(t, r.claim(10, 1e9))
	r.compareAgain()
	r.round()
	require.Equal(t, ids, idsOf(r.claim(10, 1e9)))
}
