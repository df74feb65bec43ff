package alerts

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Releases before the consumers ~mail and ~webhook handed alerts on themselves: they have a row in the table
// alerts for each alert that the mail server or the webhook did not have yet. A broker makes a job of such a row.
// An old broker that still runs claims rows in the same way, so one of both hands an alert on.

// carryEvery is the interval at which rows are looked for that an old broker has left.
const carryEvery = time.Minute

// carryRound makes messages of the rows of an older release, each for the one consumer that takes the place of its
// sink. Rows without such a consumer are forgotten when they are old.
func (a *Alerts) carryRound(ctx context.Context) (time.Duration, error) {
	for sink, id := range map[durable.Sink]string{durable.AlertMail: MailConsumer, durable.AlertWebhook: WebhookConsumer} {
		if k := a.o.Catalogue.Consumer(ident.AlertsChannel, id); k != nil {
			if err := a.carry(ctx, sink, k); err != nil {
				return carryEvery, err
			}
		}
	}
	return carryEvery, a.o.Store.ForgetAlerts(ctx, a.o.NowMs()-oldest.Milliseconds())
}

// carry makes jobs of a consumer of the rows of a sink that are due.
func (a *Alerts) carry(ctx context.Context, sink durable.Sink, k *durable.Consumer) error {
	var to durable.PositionSet
	to.Add(k.Position)
	for {
		due, _, err := a.o.Store.DueAlerts(ctx, sink, a.o.NowMs(), page)
		if err != nil || len(due) == 0 {
			return err
		}
		for i := range due {
			if _, err := a.hand(ctx, &due[i], &durable.Message{ChannelNo: k.ChannelNo,
				Key: key(&due[i]) + "-" + k.ID[1:], Addressed: to.Positions()}); err != nil {
				return err
			}
		}
	}
}
