package importer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/oldbroker"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A newBroker is a store that is imported into.
type newBroker struct {
	*durable.Store
	t    *testing.T
	o    Options
	cat  *catalogue.Catalogue
	out  *bytes.Buffer // of the last run
	dies func() bool   // before outcomes are recorded
}

// eachTarget runs f with each kind of store.
func eachTarget(t *testing.T, f func(t *testing.T, b *newBroker)) {
	t.Run("embedded", func(t *testing.T) {
		store, err := durable.OpenSQLite(t.Context(), t.TempDir(), durable.Options{})
		f(t, newTarget(t, store, err))
	})
	t.Run("MySQL", func(t *testing.T) {
		store, err := durable.OpenMySQL(t.Context(), servers.MySQL(t), durable.Options{})
		f(t, newTarget(t, store, err))
	})
}

func newTarget(t *testing.T, store *durable.Store, err error) *newBroker {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Migrate(t.Context()))
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	node, err := cluster.New(t.Context(), store, "import"+cluster.NoFailSafe, log)
	require.NoError(t, err)
	b := &newBroker{Store: store, t: t, cat: catalogue.New(store, log)}
	counts := metrics.New(prometheus.NewRegistry())
	bodies := share.New(share.Options{Name: "bodies", Most: 64 << 20, Reserve: 8 << 20, Small: 64 << 10})
	submitter := accept.New(accept.Options{Store: store, Catalogue: b.cat, Node: node, Bodies: bodies, Metrics: counts,
		Admission: accept.NewAdmission(1024), Committed: func([]*durable.Message) {}, Log: log})
	policy, err := egress.ParsePolicy("private", nil)
	require.NoError(t, err)
	b.o = Options{Store: b, Catalogue: b.cat, NowMs: node.NowMs, Egress: policy, TokenHeader: "X-Broker-Consumer-Token",
		Poll: 20 * time.Millisecond, Log: log,
		Publisher: publish.New(publish.Options{Submitter: submitter, Catalogue: b.cat, MaxBody: 1 << 20, NowMs: node.NowMs,
			TokenHeader: "X-Broker-Consumer-Token", Bodies: bodies, Receipts: store, Metrics: counts})}
	ctx, stop := context.WithCancel(context.Background())
	var keepers sync.WaitGroup
	keepers.Go(func() { _ = node.Run(ctx) })
	keepers.Go(func() { submitter.Run(ctx) })
	t.Cleanup(func() { stop(); keepers.Wait() })
	return b
}

// ChangeState implements Store.
func (b *newBroker) ChangeState(ctx context.Context, path string, p durable.StateChange) (bool, error) {
	require.True(b.t, strings.HasPrefix(path, "/channel/"), path)
	_, changed, err := b.SetConsumerState(ctx, p)
	return changed, err
}

// Record implements Store. It may fail as a store that is gone.
func (b *newBroker) Record(ctx context.Context, outcomes []durable.Outcome) error {
	if b.dies != nil && b.dies() {
		return context.Canceled
	}
	return b.Store.Record(ctx, outcomes)
}

// run imports from an old broker.
func (b *newBroker) run(ctx context.Context, old *oldbroker.Broker, more ...func(*Options)) (*Report, error) {
	b.t.Helper()
	o := b.o
	b.out = &bytes.Buffer{}
	o.Old, o.Out = openOld(b.t, old), b.out
	for _, change := range more {
		change(&o)
	}
	return New(o).Run(ctx)
}

func (b *newBroker) imports(old *oldbroker.Broker, more ...func(*Options)) *Report {
	b.t.Helper()
	r, err := b.run(b.t.Context(), old, more...)
	require.NoError(b.t, err)
	return r
}

// message returns a message by its ID; nil: it is not here.
func (b *newBroker) message(channel, id string) *durable.Message {
	b.t.Helper()
	ch := b.cat.Channel(channel)
	require.NotNil(b.t, ch)
	found, err := b.MessagesByKeys(b.t.Context(), ch.No, []string{id})
	require.NoError(b.t, err)
	if len(found) == 0 {
		return nil
	}
	all, err := b.Messages(b.t.Context(), ch.No, []ident.ID{found[id]})
	require.NoError(b.t, err)
	require.Len(b.t, all, 1)
	return &all[0]
}

// job returns the state of a job, or that there is none.
func (b *newBroker) job(channel, id, consumer string) (s durable.JobState, is bool) {
	b.t.Helper()
	m, k := b.message(channel, id), b.cat.Consumer(channel, consumer)
	if m == nil || k == nil || !k.Concerns(m.Head()) {
		return s, false
	}
	states, err := b.JobStates(b.t.Context(), k.No, []ident.ID{m.ID})
	require.NoError(b.t, err)
	return states[m.ID], true
}

// A shop is an old broker with two channels and three consumers.
type shop struct {
	*oldbroker.Broker
	billing, packing, audit string
}

func newShop(t *testing.T) *shop {
	o := oldbroker.New(t)
	o.Producer("till", "till-token")
	o.Channel("orders", "orders-token")
	o.Channel("audit", "audit-token")
	return &shop{o, o.Consumer("orders", "billing", 1), o.Consumer("orders", "packing", 0),
		o.Consumer("audit", "billing", 1)}
}

func TestRealServersEverythingIsHereWithItsIDsAndTokens(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		all := o.Message(oldbroker.Message{ID: "all", Channel: "orders", Producer: "till", Priority: 7,
			MediaType: "application/json", Headers: `{"X-Tenant":"T1","X-Broker-Consumer-Token":"forged","Content-Encoding":"gzip"}`})
		o.Job(all, o.billing, queued, 2)
		o.Job(all, o.packing, dead, 5)
		made := o.Message(oldbroker.Message{Channel: "orders", Producer: "till", Priority: -3,
			Payload: "\x00\x01\ttext\u2028"})
		o.Job(made, o.billing, inFlight, 0)
		done := o.Message(oldbroker.Message{ID: "done", Channel: "orders", Producer: "till", Priority: 1 << 30})
		o.Job(done, o.packing, delivered, 1)
		o.Message(oldbroker.Message{ID: "nobody", Channel: "orders", Producer: "till"})
		o.Message(oldbroker.Message{ID: "taken", Channel: "orders", Producer: "till", Status: acknowledged})
		o.Schedule("later", "audit", "till", time.Now().Add(time.Hour))
		o.Schedule("due", "audit", "till", time.Now().Add(-time.Hour))

		r := b.imports(o.Broker)
		require.True(t, r.Complete(), b.out.String())
		require.Equal(t, map[string]Count{producers: {1, 1}, channels: {2, 2}, consumers: {3, 3}, messages: {5, 5},
			jobsOpen: {2, 2}, jobsDead: {1, 1}, jobsDelivered: {1, 1}, schedules: {2, 2}}, r.Counts)

		require.Equal(t, "till-token", b.cat.Producer("till").Token)
		require.Equal(t, "Channel orders", b.cat.Channel("orders").Name)
		k := b.cat.Consumer("orders", "packing")
		require.Equal(t, []any{durable.Pull, "packing-token", "https://consumers.example/packing"},
			[]any{k.Type, k.Token, k.CallbackURL})
		require.Equal(t, durable.StateActive, k.State)

		m := b.message("orders", "all")
		require.Equal(t, []any{7, "application/json", "payload of all", "Content-Encoding:gzip\nX-Tenant:T1\n"},
			[]any{m.Priority, m.ContentType, string(m.Payload), string(m.Headers)})
		m = b.message("orders", made)
		require.Equal(t, []any{made, 3, "\x00\x01\ttext\u2028"}, []any{m.PathID(), m.Priority, string(m.Payload)})
		require.Equal(t, 1023, b.message("orders", "done").Priority)

		for _, want := range []struct {
			id, consumer string
			is           bool
			status       durable.JobStatus
			attempts     int
		}{{"all", "billing", true, durable.Open, 2}, {"all", "packing", true, durable.Dead, 6},
			{made, "billing", true, durable.Waiting, 0}, {made, "packing", false, 0, 0},
			{"done", "packing", true, durable.Delivered, 2}, {"done", "billing", false, 0, 0},
			{"nobody", "billing", false, 0, 0}, {"taken", "billing", true, durable.Waiting, 0},
			{"taken", "packing", true, durable.Waiting, 0}} {
			s, is := b.job("orders", want.id, want.consumer)
			require.Equal(t, []any{want.is, want.status, want.attempts}, []any{is, s.Status, s.Attempts}, "%s %s", want.id,
				want.consumer)
		}
		_, err := b.ScheduledByKey(t.Context(), b.cat.Channel("audit").No, "later")
		require.NoError(t, err)
		_, is := b.job("audit", "due", "billing")
		require.True(t, is, "its time has come")
		require.Contains(t, b.out.String(), `note: the header "X-Broker-Consumer-Token" is left out`)
		require.NotContains(t, b.out.String(), "-token ")

		before, err := b.Messages(t.Context(), m.ChannelNo, []ident.ID{m.ID})
		require.NoError(t, err)
		r = b.imports(o.Broker)
		require.Equal(t, []any{true, int64(0), int64(0)}, []any{r.Complete(), r.Imported, r.Ended}, "nothing twice")
		after, err := b.ListMessages(t.Context(), m.ChannelNo, ident.ID{}, 100)
		require.NoError(t, err)
		require.Len(t, after, 5)
		require.Equal(t, before[0].ID, b.message("orders", made).ID)
	})
}

func TestRealServersARunThatDiesAnywhereIsFollowedByOneThatGoesOn(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		for i := range 3*pageRows + 7 {
			row := o.Message(oldbroker.Message{ID: fmt.Sprint("m", i), Channel: "orders", Producer: "till"})
			o.Job(row, o.billing, []int{queued, inFlight, delivered, dead}[i%4], i%3)
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		b.dies = func() bool { // in the second page, behind its messages
			if calls++; calls == 2 {
				cancel()
			}
			return calls >= 2
		}
		_, err := b.run(ctx, o.Broker)
		require.Error(t, err)
		require.NotNil(t, b.message("orders", fmt.Sprint("m", 2*pageRows-1)), "the page was stored")
		require.Nil(t, b.message("orders", fmt.Sprint("m", 2*pageRows)))
		b.dies = nil
		r := b.imports(o.Broker)
		require.True(t, r.Complete())
		require.Equal(t, int64(pageRows+7), r.Imported)
		for i, want := range []durable.JobStatus{durable.Waiting, durable.Open, durable.Delivered, durable.Dead} {
			s, is := b.job("orders", fmt.Sprint("m", pageRows+i), "billing")
			require.True(t, is)
			if i == 0 && (pageRows+i)%3 != 0 {
				want = durable.Open
			}
			if i == 1 && (pageRows+i)%3 == 0 {
				want = durable.Waiting
			}
			require.Equal(t, want, s.Status, i)
		}
		all, err := b.ListMessages(t.Context(), b.cat.Channel("orders").No, ident.ID{}, 4*pageRows)
		require.NoError(t, err)
		require.Len(t, all, 3*pageRows+7)
	})
}

func TestRealServersRowsThatCannotBeImportedAreNamed(t *testing.T) {
	eachTarget(t, func(t *testing.T, b *newBroker) {
		o := newShop(t)
		o.Channel("a b", "t")
		o.Producer("~till", "t")
		o.Producer("blank", "a token")
		o.Exec("INSERT INTO producer (id) VALUES ('empty')")
		bad := o.Consumer("orders", "bad", 7)
		local := o.Consumer("orders", "nowhere", 1)
		o.Exec("UPDATE consumer SET callbackUrl = 'ftp://secret@h/x' WHERE id = ?", local)
		good := o.Message(oldbroker.Message{ID: "good", Channel: "orders", Producer: "till"})
		o.Job(good, o.billing, queued, 0)
		for id, m := range map[string]oldbroker.Message{
			"unknown-producer": {Producer: "nobody"}, "unknown-channel": {Channel: "nowhere"}, "a/b": {},
			strings.Repeat("x", 255): {Status: 7}, "large": {Payload: strings.Repeat("x", 1<<20+1)},
			"headers": {Headers: `{"a":1}`}, "type": {MediaType: "text/\x01"}} {
			if m.ID = id; m.Channel == "" {
				m.Channel = "orders"
			}
			if m.Producer == "" {
				m.Producer = "till"
			}
			o.Message(m)
		}
		null := o.Message(oldbroker.Message{ID: "null", Channel: "orders", Producer: "till"})
		o.Exec("UPDATE message SET payload = NULL WHERE id = ?", null)
		for id, job := range map[string]func(row string){
			"status":  func(row string) { o.Job(row, o.billing, 1009, 0); o.Job(row, o.packing, queued, 0) },
			"type-7":  func(row string) { o.Job(row, bad, queued, 0) },
			"orphan":  func(row string) { o.Job(row, "gone", queued, 0) },
			"foreign": func(row string) { o.Job(row, o.audit, queued, 0) }} {
			job(o.Message(oldbroker.Message{ID: id, Channel: "orders", Producer: "till"}))
		}
		r := b.imports(o.Broker)
		require.False(t, r.Complete())
		require.Equal(t, Count{13, 1}, r.Counts[messages], b.out.String())
		require.Equal(t, Count{5, 3}, r.Counts[consumers])
		require.Equal(t, Count{4, 1}, r.Counts[producers])
		require.Equal(t, Count{3, 2}, r.Counts[channels])
		for _, want := range []string{`producer "~till": its ID begins with ~`, `producer "blank": its token is not`,
			`producer "": its ID`, `channel "a b": its ID`, `consumer "bad": its type is 7`,
			`consumer "nowhere": the broker may not post to its callback URL`, `message "unknown-producer": its producer "nobody"`,
			`message "unknown-channel": its channel "nowhere"`, `message "a/b": A message ID must be`,
			`xx": its status is 7`, `message "large": `, `message "headers": its headers`, `message "type": The content type`,
			`message "null": it has no payload`, `has the status 1009`, `has the consumer "bad", which is not imported`,
			"has an unknown consumer", "has a consumer of another channel", "18 rows cannot be imported"} {
			require.Contains(t, b.out.String(), want)
		}
		require.NotContains(t, b.out.String(), "secret")
		require.Nil(t, b.message("orders", "status"), "half of it is worse than nothing")
		_, is := b.job("orders", "good", "billing")
		require.True(t, is, "neighbours are imported")

		o.Exec("UPDATE consumer SET type = 0 WHERE id = ?", bad) // and again, after they are mended
		o.Exec("UPDATE job SET status = 1004 WHERE status = 1009")
		o.Exec("DELETE FROM message WHERE messageId NOT IN ('good', 'status', 'type-7')")
		r = b.imports(o.Broker)
		require.Equal(t, Count{3, 3}, r.Counts[messages], b.out.String())
		s, _ := b.job("orders", "status", "billing")
		require.Equal(t, durable.Dead, s.Status)
	})
}
