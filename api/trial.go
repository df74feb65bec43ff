package api

import (
	"context"
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// Trials sends test messages to push consumers: a hotpath.Plane.
type Trials interface {
	Try(k *durable.Consumer) (<-chan push.Trial, error)
}

const (
	// trialCheck is the interval at which a test looks whether its client is still there.
	trialCheck = 500 * time.Millisecond
	// trialAnswer is the time for the answer of the broker after that of the consumer.
	trialAnswer = 30 * time.Second
)

var errTestPull = problem.New(fasthttp.StatusConflict, "consumer_pull",
	"The broker does not call a pull consumer, so there is nothing to test.")

// testConsumer sends a test message to a push consumer, in whatever state it is, and answers with what
// became of it. It changes nothing. A client that leaves gets no answer; the request to the consumer ends by
// itself.
func (a *API) testConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := noForm(rc); err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	switch {
	case err != nil:
		return err
	case k.Type == durable.Pull:
		return errTestPull
	case a.o.Trials == nil:
		return problem.ErrDraining
	}
	if err := a.audit(rc); err != nil {
		return err
	}
	out, err := a.o.Trials.Try(k)
	if err != nil {
		return err
	}
	// The server set the deadline of writing when the request came.
	timeout := a.o.Policies.Of(k.Policy).Timeout
	if err := rc.Conn().SetWriteDeadline(time.Now().Add(timeout + trialAnswer)); err != nil {
		return nil // the connection is closed
	}
	t, err := awaitTrial(rc, out, a.o.Stopping)
	if t == nil {
		return err
	}
	a.log.Info("a consumer was tested", "channel", ch.ID, "consumer", k.ID, "status", t.Status, "error", t.Error,
		"request_id", requestID(rc))
	return answerJSON(rc, fasthttp.StatusOK, viewTrial(t))
}

// awaitTrial waits for the end of a test. nil: the client has left, must not have the answer any more, or
// the broker stops.
func awaitTrial(rc *fasthttp.RequestCtx, out <-chan push.Trial, stopping <-chan struct{}) (*push.Trial, error) {
	tick := time.NewTicker(trialCheck)
	defer tick.Stop()
	for {
		select {
		case t := <-out:
			return &t, nil
		case <-stopping:
			return nil, problem.ErrDraining
		case <-tick.C:
		}
		if intake.Gone(rc.Conn()) {
			return nil, nil
		}
		if err := standing(rc).Check(); err != nil {
			return nil, err
		}
	}
}

func viewTrial(t *push.Trial) apitype.ConsumerTest {
	v := apitype.ConsumerTest{Status: t.Status, DurationMs: t.Took.Milliseconds(), Error: t.Error}
	body := t.Body
	if !utf8.Valid(body) {
		body = wholeRunes(body)
	}
	v.Body = string(body)
	if !utf8.Valid(body) {
		v.Body, v.BodyEncoding = base64.StdEncoding.EncodeToString(t.Body), apitype.Base64
	}
	return v
}
