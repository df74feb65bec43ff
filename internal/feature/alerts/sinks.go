package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Mailer sends a mail about one or more alerts. id is the same in repetitions.
type Mailer interface {
	Send(ctx context.Context, id string, alerts []apitype.Alert) error
}

// A Poster posts the JSON of an alert. id is the same in repetitions.
type Poster interface {
	Post(ctx context.Context, id string, body []byte) error
}

const (
	// mailPause is the least time between the beginnings of two mails, of all brokers together:
	// at most ten mails a minute. Alerts that come meanwhile share the next mail.
	mailPause = 6 * time.Second
	// mailSetting is the time, Unix ms, at which the next mail may begin.
	mailSetting = "alerts.mail"
	// tryTimeout bounds one mail or request. The claim of the alerts is longer.
	tryTimeout = 20 * time.Second
	// stopWithin is the time that a mail or request under way has when the broker stops.
	stopWithin = 3 * time.Second
	// postPause is the pause after a webhook that failed.
	postPause = 5 * time.Second
	// postPage is the number of requests after which the webhook's alerts are read again.
	postPage = 10
)

// due returns up to limit alerts that a sink may be given now, in turn by consumer, and the time from
// which it may be given another one.
func (a *Alerts) due(ctx context.Context, sink durable.Sink, nowMs int64, limit int) (due []*durable.Alert,
	nextMs int64, err error) {
	all, nextMs, err := a.o.Store.DueAlerts(ctx, sink, nowMs, held)
	var turns share.Turns[*durable.Alert]
	for i := range all {
		turns.Push(share.Consumer(all[i].ConsumerNo), &all[i])
	}
	turns.ServeInOrder(func(alert *durable.Alert) bool {
		due = append(due, alert)
		return len(due) < limit
	})
	return due, nextMs, err
}

// mailRound sends one mail about all alerts that are due, if a mail may be sent now.
func (a *Alerts) mailRound(ctx context.Context) (time.Duration, error) {
	now := a.o.NowMs()
	due, nextMs, err := a.due(ctx, durable.AlertMail, now, page)
	if err != nil || len(due) == 0 {
		return a.again(nextMs), err
	}
	next, err := a.o.Store.Setting(ctx, mailSetting)
	if err != nil {
		return grace, err
	}
	if wait := next - now; wait > 0 && wait <= mailPause.Milliseconds() {
		return time.Duration(wait) * time.Millisecond, nil
	}
	swapped, err := a.o.Store.SwapSetting(ctx, mailSetting, next, now+mailPause.Milliseconds())
	if err != nil || !swapped { // another broker sends one
		return grace, err
	}
	var mine []durable.Alert
	var views []apitype.Alert
	for _, alert := range due {
		v, err := a.view(ctx, alert)
		if err != nil {
			return grace, err
		}
		claimed, err := a.o.Store.ClaimAlert(ctx, *alert, a.until(alert.Tries))
		if err != nil {
			return grace, err
		}
		if claimed {
			mine, views = append(mine, *alert), append(views, v)
		}
	}
	if len(mine) == 0 {
		return 0, nil
	}
	try, cancel := trying(ctx)
	failure := a.o.Mail.Send(try, mailID(mine), views)
	cancel()
	return 0, a.conclude(ctx, mine, failure)
}

// mailID is the ID of a mail: that of its alert, or a digest of those of all its alerts.
func mailID(alerts []durable.Alert) string {
	if len(alerts) == 1 {
		return key(&alerts[0])
	}
	digest := sha256.New()
	for i := range alerts {
		digest.Write([]byte(key(&alerts[i]) + "\n"))
	}
	return "alerts-" + hex.EncodeToString(digest.Sum(nil)[:12])
}

// webhookRound posts the alerts that are due, one after the other.
func (a *Alerts) webhookRound(ctx context.Context) (time.Duration, error) {
	due, nextMs, err := a.due(ctx, durable.AlertWebhook, a.o.NowMs(), postPage)
	if err != nil || len(due) == 0 {
		return a.again(nextMs), err
	}
	for _, alert := range due {
		body, err := a.body(ctx, alert)
		if err != nil {
			return grace, err
		}
		claimed, err := a.o.Store.ClaimAlert(ctx, *alert, a.until(alert.Tries))
		if err != nil {
			return grace, err
		}
		if !claimed {
			continue
		}
		try, cancel := trying(ctx)
		failure := a.o.Webhook.Post(try, key(alert), body)
		cancel()
		if err := a.conclude(ctx, []durable.Alert{*alert}, failure); err != nil || failure != nil {
			return min(postPause, a.retry), err
		}
	}
	return 0, nil
}

// trying returns the context of one mail or request. It ends stopWithin after ctx.
func trying(ctx context.Context) (context.Context, context.CancelFunc) {
	try, cancel := finish(ctx, tryTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(stopWithin, cancel) })
	return try, func() { stop(); cancel() }
}

// conclude ends alerts that their sink has taken, and those that it will never take. The others are
// due again when their claim ends.
func (a *Alerts) conclude(ctx context.Context, alerts []durable.Alert, failure error) error {
	name := sinkName(alerts[0].Sink)
	if failure != nil {
		a.failures.WithLabelValues(name).Inc()
		a.o.Log.Warn("alerts could not be handed on", "sink", name, "alerts", names(alerts), "error", failure)
	}
	ctx, cancel := finish(ctx, publishFor)
	defer cancel()
	for _, alert := range alerts {
		switch {
		case failure == nil:
			a.sent.WithLabelValues(name).Inc()
		case alert.Tries+1 >= maxTries:
			a.dropped.WithLabelValues(name).Inc()
			a.o.Log.Error("a sink failed too often; it does not get the alert, which is on the channel", "sink", name, "alert",
				names([]durable.Alert{alert}))
		default:
			continue
		}
		if _, err := a.o.Store.FinishAlert(ctx, alert, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// names describes alerts in the log.
func names(alerts []durable.Alert) string {
	var b strings.Builder
	for i, a := range alerts {
		if i == 10 {
			b.WriteString(", ...")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.Event.String() + " " + a.ChannelID + "/" + a.ConsumerID)
	}
	return b.String()
}
