package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// retryConsumer makes all delayed jobs of a consumer due now. The jobs that it moved before an error stay
// moved, and a repeated request moves the rest. A hold of the consumer stays: it is no delay of a job.
func (a *API) retryConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := noForm(rc); err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	if err := rc.Conn().SetWriteDeadline(time.Now().Add(stepsWithin + stepsAnswer)); err != nil {
		return nil // the connection is closed
	}
	if err := a.audit(rc); err != nil {
		return err
	}
	steps, cancel := context.WithTimeout(request.Of(rc), stepsWithin)
	defer cancel()
	n, err := a.o.Jobs.RetryAll(steps, k.No)
	if n > 0 {
		a.log.Info("delayed jobs of a consumer are due now", "channel", ch.ID, "consumer", k.ID, "jobs", n, "request_id",
			requestID(rc))
	}
	if err != nil {
		return err
	}
	return answerJSON(rc, fasthttp.StatusOK, apitype.Retried{Retried: n})
}
