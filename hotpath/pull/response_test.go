package pull

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// A leasedQueue has a lease of every job.
type leasedQueue struct{ Queue }

func (leasedQueue) Probe(_ context.Context, _ uint32, ids []ident.ID) ([]redisq.Standing, error) {
	all := make([]redisq.Standing, len(ids))
	for i := range all {
		all[i] = redisq.Standing{State: redisq.Leased, Token: "token", Attempts: 1}
	}
	return all, nil
}

// A slowOutcomes keeps the outcomes that it is to store.
type slowOutcomes struct {
	Outcomes
	all   []outcome.Entry
	added func() // may be nil
}

func (o *slowOutcomes) Add(r outcome.Entry) {
	if o.all = append(o.all, r); o.added != nil {
		o.added()
	}
}

// responding returns the pull routes with a consumer that has responses on.
func responding(t *testing.T, room *exchange.Room) (*Puller, *slowOutcomes, *catalogue.Channel, *durable.Consumer) {
	t.Helper()
	stored := &slowOutcomes{}
	policies := policy.NewBook(policy.Policy{})
	record, err := policies.Merge("", map[string]string{"responses": "store", "responseMaxBytes": "8"}, time.Unix(0, 0))
	require.NoError(t, err)
	p := New(Options{Policies: policies, Catalogue: catalogue.New(nil, nil), Queue: leasedQueue{}, Store: oneMessage{},
		Verifier: verifierOf(oneMessage{}, 1<<20), Outcomes: stored, NowMs: func() int64 { return 7 }, Room: room,
		Metrics: metrics.New(prometheus.NewRegistry())})
	return p, stored, &catalogue.Channel{Channel: durable.Channel{No: 1}}, &durable.Consumer{No: 1, ChannelNo: 1,
		Type: durable.Pull, Policy: record}
}

// report is the body of a batch update that reports a job as delivered, with other members.
func report(ms int64, members string) string {
	return `{"ID":"` + ident.AtMillis(ms).Job(0).String() + `","Lease":"token","NextState":"DELIVERED"` + members + `}`
}

func TestTheResponseOfAReportIsInTheOutcomeOfItsJob(t *testing.T) {
	p, stored, ch, k := responding(t, nil)
	updates, err := parseUpdates([]byte(`{"Updates":[` + strings.Join([]string{
		report(1, `,"Response":"more than 8","ResponseType":" a/b "`), report(2, `,"ResponseBase64":"/wA="`), report(3, ""),
		report(4, `,"Response":7`)}, ",") + `]}`))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is stored
	u := p.update(ctx, ch, k, updates)
	require.Len(t, stored.all, 3)
	e := stored.all[0].Outcome.Exchange
	require.Equal(t, []any{durable.ResponseReceived, "more tha", true, "Content-Type:a/b\n", 200, 1, int64(7)},
		[]any{e.State, string(e.Body), e.Truncated, string(e.Headers), e.Status, e.Attempt, e.ReceivedMs})
	e = stored.all[1].Outcome.Exchange
	require.Equal(t, []any{durable.ResponseReceived, "\xff\x00", ""}, []any{e.State, string(e.Body), string(e.Headers)})
	require.Equal(t, durable.DeliveredReceiver, stored.all[2].Outcome.Exchange.State, "it is awaited")
	require.Equal(t, "invalid_response", problem.From(u.errs[3]).Code)
}

func TestResponsesOfReportsTakeRoomUntilTheyAreStored(t *testing.T) {
	room := exchange.NewRoom()
	p, stored, ch, k := responding(t, room)
	taken := room.Bounds()[0].Taken
	for one := room.Begin(k, 1<<20, 1<<20); one != nil; one = room.Begin(k, 1<<20, 1<<20) {
		defer one.Close()
	}
	full := taken()
	ctx, cancel := context.WithCancel(t.Context())
	stored.added = cancel // nothing is stored
	answer := func(k *durable.Consumer) error {
		updates, err := parseUpdates([]byte(`{"Updates":[` + report(1, `,"Response":"12345"`) + `]}`))
		require.NoError(t, err)
		return p.update(ctx, ch, k, updates).errs[0]
	}
	require.ErrorIs(t, answer(k), errResponseRoom)
	require.Empty(t, stored.all)
	other := *k
	other.No = 2
	require.ErrorIs(t, answer(&other), durable.ErrOutcomeUnknown, "it waits for the store")
	require.Len(t, stored.all, 1)
	require.Equal(t, full+5, taken())
	stored.all[0].Sink.Done(nil)
	require.Equal(t, full, taken())
}
