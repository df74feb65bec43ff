package reaper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// newRetention has a clock that is a minute ahead, so that a published message is halfway
// through its retention.
func newRetention(t *testing.T, retention time.Duration) (*rig, *purger) {
	r := newRig(t, 100, func(o *Options) { o.Retention = retention })
	return r, newPurger(r.Reaper)
}

func (r *rig) left(ids []ident.ID) int {
	r.t.Helper()
	got, err := r.store.Messages(r.t.Context(), r.channel.No, ids)
	require.NoError(r.t, err)
	return len(got)
}

func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.Registry.(*prometheus.Registry).Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	require.Fail(r.t, "there is no such metric", name)
	return 0
}

func TestMessagesAreRemovedWhenTheyAreOverAndTheirTimeHasCome(t *testing.T) {
	r, young := newRetention(t, 2*time.Minute)
	ids := r.publish(0, 0, 5)
	r.deliver(ids[:2]...)
	require.NoError(t, young.round(t.Context()))
	require.Equal(t, 3, r.left(ids), "too young")

	young.Retention = 30 * time.Second
	old := young
	require.NoError(t, old.round(t.Context()))
	require.Equal(t, 1, r.left(ids), "one is open")
	require.InDelta(t, 2, r.metric("penstock_purged_messages_total"), 0)
	require.Zero(t, r.metric("penstock_retention_overdue_seconds"))

	r.deliver(ids[2])
	require.NoError(t, old.round(t.Context()))
	require.Equal(t, 1, r.left(ids), "the scan is past it")
	old.began = time.Time{}
	require.NoError(t, old.round(t.Context()))
	require.Zero(t, r.left(ids), "it begins again now and then")
}

func TestADeadLetterKeepsItsMessageAsLongAsItIsTold(t *testing.T) {
	r, p := newRetention(t, 30*time.Second)
	ids := r.publish(0, 0)
	var out []durable.Outcome
	for i, id := range ids {
		died := r.NowMs() - int64(i)*time.Hour.Milliseconds()
		out = append(out, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No, ID: id, Attempts: 2,
			AtMs: died})
	}
	require.NoError(t, r.store.Record(t.Context(), out))
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, 2, r.left(ids), "for ever")
	p.DeadRetention = 30 * time.Minute
	p.began = time.Time{}
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, 1, r.left(ids))
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Len(t, dead, 1)
}

func TestWhoDoesNotOwnAChannelRemovesNothingOfIt(t *testing.T) {
	r, p := newRetention(t, 30*time.Second)
	ids := r.publish(0, 0)
	r.deliver(ids...)
	r.owned = false
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, 2, r.left(ids))
}

func TestTheRetentionHurriesOnlyWhereItIsBehindAndHasWorkToDo(t *testing.T) {
	through := ident.AtMillis((2 * time.Hour).Milliseconds())
	for _, c := range []struct {
		retention     time.Duration
		removed, kept int
		behind        time.Duration
		want          pace
	}{
		{20 * time.Minute, 50, 0, 2 * time.Minute, pace{}},
		{20 * time.Minute, 50, 0, 2*time.Minute + time.Second, pace{large: true, hurried: true}},
		{20 * time.Minute, 30, 20, time.Hour, pace{large: true, hurried: true}},
		{20 * time.Minute, 20, 30, time.Hour, pace{large: true}},
		{20 * time.Minute, 0, 0, time.Hour, pace{}},
		{1000 * time.Hour, 50, 0, time.Hour, pace{}},
		{1000 * time.Hour, 50, 0, time.Hour + time.Second, pace{large: true, hurried: true}},
		{time.Minute, 50, 0, time.Minute, pace{}},
		{time.Minute, 50, 0, time.Minute + time.Second, pace{large: true, hurried: true}},
	} {
		_, p := newRetention(t, c.retention)
		ch := &catalogue.Channel{}
		require.Equal(t, purgePage, p.page(ch))
		done := durable.Purged{Removed: c.removed, Kept: c.kept,
			Last: ident.AtMillis(through.Millis() - c.behind.Milliseconds())}
		p.note(ch, done, through)
		require.Equal(t, c.want, p.paces[ch.No], "%+v", c)
		require.Equal(t, c.want.large, p.page(ch) == largePage)
		begun := time.Now()
		require.NoError(t, p.rest(t.Context(), ch, 10*time.Millisecond))
		if !c.want.hurried {
			require.GreaterOrEqual(t, time.Since(begun), 40*time.Millisecond)
		}
		p.note(ch, durable.Purged{Last: through, Removed: 50}, through)
		require.Equal(t, purgePage, p.page(ch), "at the end it is not behind")
	}
}

// A purging store fails for one channel.
type failingPurges struct {
	Store
	channel uint32
}

var errPurge = errors.New("test: this channel cannot be purged")

func (s failingPurges) Purge(ctx context.Context, p durable.Purge) (durable.Purged, error) {
	if p.ChannelNo == s.channel {
		return durable.Purged{}, errPurge
	}
	return s.Store.Purge(ctx, p)
}

func TestAChannelThatCannotBePurgedDoesNotKeepTheOthersWaiting(t *testing.T) {
	r, p := newRetention(t, 30*time.Second)
	first := r.publish(0)
	r.deliver(first...)
	other, _, err := r.store.PutChannel(t.Context(), durable.Put{ID: "d", NewToken: "t"})
	require.NoError(t, err)
	require.NoError(t, r.catalogue.Refresh(t.Context()))
	failing := r.channel.No
	r.channel, r.audience = other, 0
	second := r.publish(0)
	p.Store = failingPurges{r.store, failing}
	require.ErrorIs(t, p.round(t.Context()), errPurge)
	require.Zero(t, r.left(second))
	p.Store = r.store
	require.NoError(t, p.round(t.Context()))
	r.channel.No = failing
	require.Zero(t, r.left(first))
}

// An outcome may arrive after retention removed its message. A comparison by counts would
// take it for the outcome of an open job.
func TestAnOutcomeOfARemovedMessageHidesNoOpenJob(t *testing.T) {
	r, _ := newRetention(t, 30*time.Second)
	first := r.publish(0)
	r.round()
	r.claim(1, time.Minute)
	r.deliver(first...)
	r.round()
	ids := r.publish(0, 0)
	r.deliver(ids[0])
	p := durable.Purge{ChannelNo: r.channel.No, Consumers: []*durable.Consumer{&r.consumer}, Through: ids[0], Limit: 10}
	_, err := r.store.Purge(t.Context(), p)
	require.NoError(t, err)
	r.deliver(ids[0]) // the broker that was paused wakes up
	r.round()
	require.Equal(t, redisq.Ready, r.state(r.consumer.No, ids[1]))
}

// pagedPurges notes of which channels it removes messages, two at a time.
type pagedPurges struct {
	Store
	of *[]uint32
}

func (s pagedPurges) Purge(ctx context.Context, p durable.Purge) (durable.Purged, error) {
	*s.of = append(*s.of, p.ChannelNo)
	p.Limit = 2
	return s.Store.Purge(ctx, p)
}

func TestAChannelWithMuchToRemoveDoesNotKeepTheOthersWaiting(t *testing.T) {
	r, p := newRetention(t, 30*time.Second)
	first := r.publish(0, 0, 0, 0, 0, 0)
	r.deliver(first...)
	other, _, err := r.store.PutChannel(t.Context(), durable.Put{ID: "d", NewToken: "t"})
	require.NoError(t, err)
	require.NoError(t, r.catalogue.Refresh(t.Context()))
	large := r.channel.No
	r.channel, r.audience = other, 0
	second := r.publish(0)
	var turns []uint32
	p.Store, p.turn = pagedPurges{r.store, &turns}, 0
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, []uint32{large, other.No, large, large}, turns)
	require.Zero(t, r.left(second))
	r.channel.No = large
	require.Zero(t, r.left(first))
}
