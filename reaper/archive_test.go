package reaper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A shelf is an archive in memory.
type shelf struct {
	sealed                [][]ident.ID
	producers             []string
	states                []durable.JobState
	full                  int // messages of a file
	begin, add, seal      error
	abandoned, unfinished int
	beforeSeal            func()
}

type book struct {
	*shelf
	ids  []ident.ID
	done bool
}

func (s *shelf) Begin(context.Context, string) (ArchiveFile, error) {
	if s.begin != nil {
		return nil, s.begin
	}
	s.unfinished++
	return &book{shelf: s}, nil
}

func (b *book) Add(m *durable.Message, producer string, _ []string, states []durable.JobState) error {
	b.ids, b.producers, b.states = append(b.ids, m.ID), append(b.producers, producer), append(b.states, states...)
	return b.add
}

func (b *book) Full() bool { return len(b.ids) >= b.full }

func (b *book) Seal(context.Context) error {
	if b.beforeSeal != nil {
		b.beforeSeal()
	}
	if b.seal != nil {
		return b.seal
	}
	b.sealed, b.done = append(b.sealed, b.ids), true
	b.unfinished--
	return nil
}

func (b *book) Abandon() {
	if !b.done {
		b.done = true
		b.abandoned++
		b.unfinished--
	}
}

func newArchived(t *testing.T, s *shelf) (*rig, *purger) {
	t.Helper()
	r := newRig(t, 100, func(o *Options) { o.Retention, o.Archive = time.Minute, s.Begin })
	r.Cluster = elder{r}
	return r, newPurger(r.Reaper)
}

func (r *rig) alarms() []durable.Alarm {
	r.t.Helper()
	open, err := r.store.Alarms(r.t.Context())
	require.NoError(r.t, err)
	return open
}

func TestMessagesAreInTheArchiveBeforeTheyAreRemoved(t *testing.T) {
	s := &shelf{full: 2}
	r, p := newArchived(t, s)
	ids := r.publish(0, 0, 0, 0)
	r.deliver(ids[0], ids[1], ids[3])
	s.beforeSeal = func() { require.Equal(t, 4-len(s.sealed)*3, r.left(ids), "nothing is removed before the seal") }
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, []int{2}, r.leftOf(ids))
	require.Equal(t, [][]ident.ID{{ids[0], ids[1], ids[3]}}, s.sealed, "a file has whole pages")
	for _, state := range s.states {
		require.Equal(t, durable.Delivered, state.Status)
	}
	require.InDelta(t, 3, r.metric("penstock_archived_messages_total"), 0)
	require.Zero(t, s.unfinished)
	p.began = time.Time{}
	require.NoError(t, p.round(t.Context()))
	require.Len(t, s.sealed, 1, "there is no empty file")
}

// Whatever of the archive fails, nothing is lost: the store keeps the messages, an alarm is open, and the
// first file that is sealed ends it.
func TestAnArchiveThatFailsStopsTheRemoval(t *testing.T) {
	full := errors.New("test: no space left on device")
	for name, fail := range map[string]func(*shelf, error){
		"begin": func(s *shelf, err error) { s.begin = err },
		"add":   func(s *shelf, err error) { s.add = err },
		"seal":  func(s *shelf, err error) { s.seal = err },
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{full: 100}
			r, p := newArchived(t, s)
			ids := r.publish(0, 0)
			r.deliver(ids...)
			fail(s, full)
			for range 2 {
				require.ErrorIs(t, p.round(t.Context()), full)
				require.Equal(t, 2, r.left(ids))
				require.Len(t, r.alarms(), 1)
			}
			require.Equal(t, durable.ArchiveFailing, r.alarms()[0].Event)
			require.InDelta(t, 1, r.metric("penstock_archive_failing"), 0)
			require.Zero(t, s.unfinished, "what was begun is removed")

			fail(s, nil)
			another := newPurger(r.Reaper) // after a restart, too
			require.NoError(t, another.round(t.Context()))
			require.Zero(t, r.left(ids))
			require.Empty(t, r.alarms())
			require.Zero(t, r.metric("penstock_archive_failing"))
		})
	}
}

// A broker that dies between the seal and the removal leaves both; the next one archives again.
func TestACrashAfterTheSealLosesNothing(t *testing.T) {
	s := &shelf{full: 100}
	r, p := newArchived(t, s)
	ids := r.publish(0, 0, 0)
	r.deliver(ids...)
	ctx, die := context.WithCancel(t.Context())
	failpoint.Hit = func(point string) {
		if point == failpoint.AfterArchive {
			die()
		}
	}
	t.Cleanup(func() { failpoint.Hit = nil })
	require.Error(t, p.round(ctx))
	failpoint.Hit = nil
	require.Equal(t, 3, r.left(ids))
	require.Len(t, s.sealed, 1)
	require.Empty(t, r.alarms())
	require.NoError(t, newPurger(r.Reaper).round(t.Context()))
	require.Zero(t, r.left(ids))
	require.Equal(t, [][]ident.ID{ids, ids}, s.sealed)
}

// What changes while the file is written stays: a redriven dead letter, and a job that ended meanwhile.
func TestOnlyWhatIsArchivedAndOverStillIsRemoved(t *testing.T) {
	s := &shelf{full: 100}
	r, p := newArchived(t, s)
	p.DeadRetention = time.Minute
	ids := r.publish(0, 0, 0)
	r.deliver(ids[0])
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No,
		ID: ids[1], Attempts: 2, AtMs: 1}}))
	s.beforeSeal = func() {
		_, err := r.store.Redrive(t.Context(), r.consumer.No, []ident.ID{ids[1]}, time.Now().UnixMilli())
		require.NoError(t, err)
		r.deliver(ids[2])
	}
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, [][]ident.ID{{ids[0], ids[1]}}, s.sealed)
	require.Equal(t, []int{1, 2}, r.leftOf(ids))
}

// A channel that the archive takes does not hide one that it does not take.
func TestTheGaugeOfTheArchiveIsThatOfAllChannels(t *testing.T) {
	r, p := newArchived(t, &shelf{full: 100})
	failing := r.catalogue.Channel("c")
	_, _, err := r.store.PutChannel(t.Context(), durable.Put{ID: "d", NewToken: "t"})
	require.NoError(t, err)
	require.NoError(t, r.catalogue.Refresh(t.Context()))
	other := r.catalogue.Channel("d")
	p.noteArchive(t.Context(), failing, 0, errArchive{errors.New("test: the folder cannot be written")})
	p.noteArchive(t.Context(), other, 1, nil)
	require.InDelta(t, 1, r.metric("penstock_archive_failing"), 0)
	require.NoError(t, p.round(t.Context()))
	require.Zero(t, r.metric("penstock_archive_failing"), "nothing is left that the archive does not take")
}
