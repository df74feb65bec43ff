package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/consumermetrics"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// pingTimeout bounds each ping of /readyz: probes give up after one to a few seconds.
const pingTimeout = time.Second

// livez depends on no store: while a store is down, the orchestrator must not restart every
// broker.
func (a *API) livez(_ context.Context, rc *fasthttp.RequestCtx) error {
	return answerJSON(rc, fasthttp.StatusOK, apitype.Health{Status: "alive"})
}

// readyz answers whether this broker can accept messages. The state of Redis is in the body
// only: without Redis the broker still accepts messages, and delivers them when it is back.
func (a *API) readyz(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if a.draining.Load() {
		return problem.ErrDraining
	}
	view := apitype.Health{Status: "ready", Store: "ok"}
	if a.o.Warning != nil {
		view.Warning = a.o.Warning()
	}
	if a.o.PingQueue != nil {
		view.Queue = "ok"
		if err := a.ping(ctx, a.o.PingQueue); err != nil {
			view.Queue = "unreachable"
		}
	}
	if err := a.ping(ctx, a.o.Store.Ping); err != nil {
		return problem.New(fasthttp.StatusServiceUnavailable, "store_unreachable",
			"The durable store does not answer.").Because(err)
	}
	if a.o.Writable != nil {
		if err := a.o.Writable(); err != nil {
			return problem.New(fasthttp.StatusServiceUnavailable, "store_not_writable",
				"The durable store answers and takes no writes: its disk may be full, or it is read-only.").Because(err)
		}
	}
	return answerJSON(rc, fasthttp.StatusOK, view)
}

func (a *API) ping(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return ping(ctx)
}

var errNoMetrics = problem.New(fasthttp.StatusNotFound, "no_metrics", "This broker exports no metrics.")

func (a *API) getMetrics(_ context.Context, rc *fasthttp.RequestCtx) error {
	if a.o.Metrics == nil {
		return errNoMetrics
	}
	a.o.Metrics(rc)
	return nil
}

// consumerMetricsQueries are the parameters of the metrics of each consumer.
var consumerMetricsQueries = []string{"channel", "limit"}

func (a *API) getConsumerMetrics(_ context.Context, rc *fasthttp.RequestCtx) error {
	if a.o.Door == nil {
		return errNoMetrics
	}
	limit := consumermetrics.MostConsumers
	var channel string
	for _, name := range consumerMetricsQueries {
		values := rc.QueryArgs().PeekMulti(name)
		switch {
		case len(values) == 0:
			continue
		case len(values) > 1:
			return problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter "+name+" occurs more than once.")
		}
		if name == "channel" {
			if channel = string(values[0]); !ident.ValidName(channel) {
				return invalidID("The parameter channel")
			}
			continue
		}
		var err error
		if limit, err = parseSize(name, string(values[0]), consumermetrics.MostConsumers); err != nil {
			return err
		}
	}
	page, err := a.o.Door.Write(channel, limit)
	if err != nil {
		return err
	}
	rc.SetContentType(consumermetrics.ContentType)
	rc.Response.SetBodyRaw(page)
	return nil
}

func (a *API) getVersion(_ context.Context, rc *fasthttp.RequestCtx) error {
	return answerJSON(rc, fasthttp.StatusOK, a.o.Version)
}

// getSettings answers with the settings of this broker, which do not change while it runs.
func (a *API) getSettings(_ context.Context, rc *fasthttp.RequestCtx) error {
	view := apitype.Settings{Result: a.o.Settings}
	if view.Result == nil {
		view.Result = []apitype.Setting{}
	}
	return answerResource(rc, fasthttp.StatusOK, view, started, false)
}

// getStatus serves health checks that were written for the older implementation: 3 means
// initialised. It leaves out the seed data of the older implementation, which contained
// every token.
func (a *API) getStatus(_ context.Context, rc *fasthttp.RequestCtx) error {
	return answerJSON(rc, fasthttp.StatusOK, apitype.Status{AppStatus: 3})
}
