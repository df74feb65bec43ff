package push

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A slowStart needs a while to name the target, and keeps how much time its posts get.
type slowStart struct {
	takes time.Duration
	given time.Duration
}

func (s *slowStart) Target(egress.Rule, string, string) (Target, error) {
	time.Sleep(s.takes)
	return s, nil
}

func (s *slowStart) Post(_ *fasthttp.Request, timeout time.Duration) egress.Result {
	s.given = timeout
	return egress.Result{Status: 204}
}

// What a process sleeps away between the look at the lease and the request is taken
// from the request's time: else it would be sent on a lease that is over.
func TestAPostThatBeginsLateHasOnlyTheRestOfItsTime(t *testing.T) {
	s := &slowStart{takes: 30 * time.Millisecond}
	d := &Dispatcher{client: s, catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler)),
		settings: Settings{Policies: policy.NewBook(policy.Policy{Timeout: time.Minute}), TokenHeader: "T"}}
	v := &delivery{d: d, lane: &lane{}, consumer: &durable.Consumer{}, msg: &durable.Message{}}
	require.Equal(t, 204, v.post(t.Context(), time.Now().Add(20*time.Millisecond)).Status)
	require.Negative(t, s.given)
}
