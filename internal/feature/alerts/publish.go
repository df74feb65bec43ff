package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// publishRound publishes the alerts that are due on the channel.
func (a *Alerts) publishRound(ctx context.Context) (time.Duration, error) {
	due, nextMs, err := a.o.Store.DueAlerts(ctx, durable.AlertChannel, a.o.NowMs(), page)
	if err != nil || len(due) == 0 {
		return a.again(nextMs), errors.Join(err, a.forget(ctx))
	}
	for i := range due {
		if err := a.publishOne(ctx, &due[i]); err != nil {
			return grace, err
		}
	}
	return 0, nil // there may be more
}

// forget drops alerts whose sink no broker serves any more.
func (a *Alerts) forget(ctx context.Context) error {
	now := time.Now()
	if now.Before(a.forgotten) {
		return nil
	}
	a.forgotten = now.Add(time.Hour)
	return a.o.Store.ForgetAlerts(ctx, a.o.NowMs()-oldest.Milliseconds())
}

// publishFor is the time that a broker has to publish an alert.
const publishFor = 10 * time.Second

// finish returns a context in which a claimed alert is handed on. A broker that stops finishes it.
func finish(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), within)
}

// publishOne publishes an alert unless another broker has it, and hands it on.
func (a *Alerts) publishOne(ctx context.Context, alert *durable.Alert) error {
	body, err := a.body(ctx, alert)
	if err != nil {
		return err
	}
	ch := a.o.Catalogue.Channel(ident.AlertsChannel)
	if ch == nil {
		return errors.New("alerts: the channel " + ident.AlertsChannel + " does not exist")
	}
	claimed, err := a.o.Store.ClaimAlert(ctx, *alert, a.o.NowMs()+publishFor.Milliseconds())
	if err != nil || !claimed {
		return err
	}
	ctx, cancel := finish(ctx, publishFor)
	defer cancel()
	err = a.o.Publish(ctx, &durable.Message{ChannelNo: ch.No, Key: key(alert), ContentType: apitype.MediaJSON,
		Payload: body})
	failpoint.At(failpoint.AfterAlert)
	repeat := errors.Is(err, durable.ErrDuplicate) || errors.Is(err, durable.ErrConflict)
	onto := a.onto
	switch {
	case err == nil:
		a.published.WithLabelValues(alert.Event.String()).Inc()
		a.o.Log.Info("alert", "event", alert.Event.String(), "channel", alert.ChannelID, "consumer", alert.ConsumerID,
			"reason", alert.Reason)
	case repeat && alert.Tries == 0: // no broker had begun to publish it: the same alert was raised again
		onto = nil
	case repeat: // by a broker that died before it ended the row
	case errors.Is(err, durable.ErrRejected):
		a.o.Log.Error("an alert cannot be published", "event", alert.Event.String(), "channel", alert.ChannelID, "consumer",
			alert.ConsumerID, "error", err)
	default:
		a.failures.WithLabelValues("channel").Inc()
		return err
	}
	full, err := a.o.Store.FinishAlert(ctx, *alert, onto, held)
	for _, sink := range full {
		a.dropped.WithLabelValues(sinkName(sink)).Inc()
		a.o.Log.Warn("too many alerts wait for a sink; one is on the channel only", "sink", sinkName(sink), "event",
			alert.Event.String(), "channel", alert.ChannelID, "consumer", alert.ConsumerID)
	}
	if len(onto) > 0 {
		a.handOn()
	}
	return err
}

// key is the message ID of an alert. It has no full stop, so it is the webhook-id as well.
func key(a *durable.Alert) string {
	_, event, _ := strings.Cut(a.Event.String(), ".")
	event = strings.ReplaceAll(event, ".", "-")
	return "alert-" + event + "-" + strconv.FormatUint(uint64(a.ConsumerNo), 36) + "-" + strconv.FormatInt(a.AtMs, 36)
}

// body is the JSON of an alert. It is the same whenever and wherever it is made.
func (a *Alerts) body(ctx context.Context, alert *durable.Alert) ([]byte, error) {
	view, err := a.view(ctx, alert)
	if err != nil {
		return nil, err
	}
	return json.Marshal(view)
}

func (a *Alerts) view(ctx context.Context, alert *durable.Alert) (v apitype.Alert, err error) {
	v = apitype.Alert{Event: alert.Event.String(), ChannelID: alert.ChannelID, ConsumerID: alert.ConsumerID,
		At: apitype.Time{Time: time.UnixMilli(alert.AtMs)}, Reason: alert.Reason}
	if a.o.Link != nil && (alert.Event == durable.ConsumerDead || alert.Event == durable.ConsumerGone) {
		v.ReviveURL, err = a.o.Link(ctx, alert)
	}
	return v, err
}

// sinkName is the name of a sink in metrics and the log.
func sinkName(s durable.Sink) string {
	return [...]string{"channel", "mail", "webhook"}[min(s, durable.AlertWebhook)]
}
