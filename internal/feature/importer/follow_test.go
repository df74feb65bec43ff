package importer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/oldbroker"
)

// follow runs an import that follows in the background. stop ends it and returns its report.
func (b *newBroker) follow(o *oldbroker.Broker) (stop func() *Report) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var r *Report
	var err error
	go func() {
		defer close(done)
		r, err = b.run(ctx, o, func(o *Options) { o.Follow, o.Paused = true, true })
	}()
	return func() *Report {
		cancel()
		<-done
		require.NoError(b.t, err)
		return r
	}
}

func (b *newBroker) eventually(what string, f func() bool) {
	b.t.Helper()
	require.Eventually(b.t, f, 2*time.Minute, 10*time.Millisecond, what)
}

func TestRealServersFollowingUntilTheSwitchLosesAndRepeatsNothing(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		first := o.Message(oldbroker.Message{ID: "first", Channel: "orders", Producer: "till"})
		open, failed := o.Job(first, o.billing, queued, 0), o.Job(first, o.packing, dead, 5)
		o.Schedule("later", "orders", "till", time.Now().Add(time.Hour))
		stop := b.follow(o.Broker)
		status := func(id, consumer string) func() bool {
			return func() bool { _, is := b.job("orders", id, consumer); return is }
		}
		b.eventually("the channel", func() bool { return b.cat.Channel("orders") != nil })
		b.eventually("the first message", status("first", "billing"))
		require.Equal(t, durable.StatePaused, b.cat.Consumer("orders", "billing").State, "the old broker still delivers")

		mailing := o.Consumer("orders", "mailing", 1)
		o.Together(func() {
			second := o.Message(oldbroker.Message{ID: "second", Channel: "orders", Producer: "till"})
			o.Job(second, mailing, queued, 0)
		})
		o.Message(oldbroker.Message{ID: "not-dispatched", Channel: "orders", Producer: "till", Status: acknowledged})
		o.Set(open, delivered)
		o.Set(failed, queued) // requeued there
		b.eventually("a message of a new consumer", status("second", "mailing"))
		b.eventually("the delivery there", func() bool {
			s, _ := b.job("orders", "first", "billing")
			return s.Status == durable.Delivered
		})
		b.eventually("the requeue there", func() bool {
			s, _ := b.job("orders", "first", "packing")
			return s.Status == durable.Open
		})
		require.Nil(t, b.message("orders", "not-dispatched"), "the old broker is about to give it jobs")
		_, err := b.ScheduledByKey(t.Context(), b.cat.Channel("orders").No, "later")
		require.ErrorIs(t, err, durable.ErrNotFound, "the old broker would send it, too")
		r := stop()
		require.Positive(t, r.Left, "they wait for the last run")

		r = b.imports(o.Broker, func(o *Options) { o.Resume = true })
		require.True(t, r.Complete(), b.out.String())
		require.Contains(t, b.out.String(), "4 consumers are resumed")
		require.NotNil(t, b.message("orders", "not-dispatched"))
		_, err = b.ScheduledByKey(t.Context(), b.cat.Channel("orders").No, "later")
		require.NoError(t, err)
		require.NoError(t, b.cat.Refresh(t.Context()))
		require.Equal(t, durable.StateActive, b.cat.Consumer("orders", "mailing").State)
	})
}

func idsOf(m *durable.Message) []ident.ID { return []ident.ID{m.ID} }

// After the switch this broker delivers. The old database, which nobody changes any more, ends and revives nothing.
func TestRealServersARunAfterTheSwitchChangesNoJobOfThisBroker(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		for id, status := range map[string]int{"delivered-here": queued, "dead-here": inFlight, "redriven-here": dead} {
			o.Job(o.Message(oldbroker.Message{ID: id, Channel: "orders", Producer: "till"}), o.billing, status, 1)
		}
		b.imports(o.Broker)
		k, now := b.cat.Consumer("orders", "billing"), time.Now().UnixMilli()
		require.NoError(t, b.Store.Record(t.Context(), []durable.Outcome{
			{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: b.message("orders", "delivered-here").ID, Attempts: 2,
				AtMs: now, Tracked: true},
			{Kind: durable.OutcomeDead, ConsumerNo: k.No, ID: b.message("orders", "dead-here").ID, Attempts: 2, AtMs: now,
				Error: "500", Reason: durable.AttemptsExhausted}}))
		_, err := b.Redrive(t.Context(), k.No, idsOf(b.message("orders", "redriven-here")), now)
		require.NoError(t, err)
		r := b.imports(o.Broker)
		require.True(t, r.Complete())
		for id, want := range map[string]durable.JobStatus{"delivered-here": durable.Delivered, "dead-here": durable.Dead,
			"redriven-here": durable.Open} {
			s, _ := b.job("orders", id, "billing")
			require.Equal(t, want, s.Status, id)
		}
	})
}

func TestRealServersADryRunStoresNoMessageAndSaysTheSame(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		o.Job(o.Message(oldbroker.Message{ID: "m", Channel: "orders", Producer: "till"}), o.billing, queued, 0)
		o.Message(oldbroker.Message{ID: "a b", Channel: "orders", Producer: "till"})
		r := b.imports(o.Broker, func(o *Options) { o.DryRun = true })
		require.Equal(t, Count{2, 1}, r.Counts[messages])
		require.Contains(t, b.out.String(), "would be here")
		require.Nil(t, b.message("orders", "m"))
		require.Equal(t, r.Counts, b.imports(o.Broker).Counts)
	})
}

func TestRealServersWhatIsDoneMayStayThere(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		o.Job(o.Message(oldbroker.Message{ID: "done", Channel: "orders", Producer: "till"}), o.billing, delivered, 0)
		o.Job(o.Message(oldbroker.Message{ID: "open", Channel: "orders", Producer: "till"}), o.billing, queued, 0)
		o.Message(oldbroker.Message{ID: "taken", Channel: "audit", Producer: "till", Status: acknowledged})
		r := b.imports(o.Broker, func(o *Options) { o.OpenOnly = true })
		require.True(t, r.Complete())
		require.Equal(t, []any{Count{2, 2}, int64(1)}, []any{r.Counts[messages], r.Skipped})
		require.Nil(t, b.message("orders", "done"))
	})
}
