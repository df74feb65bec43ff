package alerts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// publishRound publishes the alerts that are due on the channel.
func (a *Alerts) publishRound(ctx context.Context) (time.Duration, error) {
	due, nextMs, err := a.o.Store.DueAlerts(ctx, durable.AlertChannel, a.o.NowMs(), page)
	if err != nil || len(due) == 0 {
		return a.again(nextMs), err
	}
	for i := range due {
		if err := a.publishOne(ctx, &due[i]); err != nil {
			return grace, err
		}
	}
	return 0, nil // there may be more
}

// publishFor is the time that a broker has to publish an alert.
const publishFor = 10 * time.Second

// publishOne publishes an alert unless another broker has it.
func (a *Alerts) publishOne(ctx context.Context, alert *durable.Alert) error {
	ch := a.o.Catalogue.Channel(ident.AlertsChannel)
	if ch == nil {
		return errors.New("alerts: the channel " + ident.AlertsChannel + " does not exist")
	}
	stored, err := a.hand(ctx, alert, &durable.Message{ChannelNo: ch.No, Key: key(alert),
		Priority: a.parts.priority(alert, time.Now()), Addressed: receivers(ch, alert)})
	if stored {
		a.published.WithLabelValues(alert.Event.String()).Inc()
		a.o.Log.Info("alert", "event", alert.Event.String(), "channel", alert.ChannelID, "consumer", alert.ConsumerID,
			"reason", alert.Reason)
	}
	return err
}

// hand claims an alert, stores it as a message, and ends its row. Without an error stored is false where another
// broker has the alert, or had stored it before it could end the row. A broker that stops finishes what it has
// claimed.
func (a *Alerts) hand(ctx context.Context, alert *durable.Alert, m *durable.Message) (stored bool, err error) {
	if m.Payload, err = a.body(ctx, alert); err != nil {
		return false, err
	}
	m.ContentType = apitype.MediaJSON
	claimed, err := a.o.Store.ClaimAlert(ctx, *alert, a.o.NowMs()+publishFor.Milliseconds())
	if err != nil || !claimed {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishFor)
	defer cancel()
	err = a.o.Publish(ctx, m)
	failpoint.At(failpoint.AfterAlert)
	switch {
	case err == nil, errors.Is(err, durable.ErrDuplicate), errors.Is(err, durable.ErrConflict):
	case errors.Is(err, durable.ErrRejected):
		a.o.Log.Error("an alert cannot be published", "event", alert.Event.String(), "channel", alert.ChannelID, "consumer",
			alert.ConsumerID, "error", err)
	default:
		a.failures.Inc()
		return false, err
	}
	return err == nil, a.o.Store.FinishAlert(ctx, *alert)
}

// receivers are the consumers that get an alert; "": all. That the dead letters of a consumer of alerts grow is
// told to the others alone: it would be the next dead letter, whose growth is the next alert, for ever.
func receivers(ch *catalogue.Channel, alert *durable.Alert) durable.Positions {
	if alert.ChannelID != ch.ID || alert.Event != durable.DLQGrowing && alert.Event != durable.DLQGrowing.Over() {
		return ""
	}
	return only(ch, func(k *durable.Consumer) bool { return k.No != alert.ConsumerNo })
}

// only are the positions of some consumers of a channel.
func only(ch *catalogue.Channel, these func(*durable.Consumer) bool) durable.Positions {
	var set durable.PositionSet
	for _, k := range ch.Consumers {
		if k != nil && !k.Deleted() && these(k) {
			set.Add(k.Position)
		}
	}
	return cmp.Or(set.Positions(), durable.NoPositions)
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
		At: apitype.Time{Time: time.UnixMilli(alert.AtMs)}, Reason: oneLine(alert.Reason)}
	if a.o.Link != nil && (alert.Event == durable.ConsumerDead || alert.Event == durable.ConsumerGone) {
		v.ReviveURL, err = a.o.Link(ctx, alert)
	}
	return v, err
}

// oneLine keeps a reason, which may quote a consumer, on its line of a mail.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
