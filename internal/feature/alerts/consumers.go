package alerts

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// The consumers of the channel ~alerts that belong to the broker. Settings decide whether they are there.
const (
	WebhookConsumer = "~webhook"
	MailConsumer    = "~mail"
)

// The settings that decide. The callback URL of each consumer names its setting: the URL of the webhook may have a
// secret, so the store has neither of the values.
const (
	WebhookSetting = "BROKER_ALERT_WEBHOOK_URL"
	MailSetting    = "BROKER_ALERT_TO"

	webhookScheme, mailScheme = "alert-webhook", "alert-mail"
)

// waits are those before the retries of both: six hours in total.
const waits = "1m,2m,4m,8m,16m,32m,1h,1h,1h,1h,1h"

// common are the fields of both, so that no default of the installation loses an alert.
var common = map[string]string{"maxRetries": "11", "backoff": waits, "ttl": "0", "tombstoneAfter": "0",
	"adaptive": "false", "ordered": "false", "dlq": "keep"}

// posts are the fields of the consumer of the webhook. An alert tells it nothing but itself.
var posts = map[string]string{"timeout": "20s", "concurrency": "4", "rateLimit": "none", "retryOn": "all",
	"identity": "minimal"}

// mails are the fields of the consumer of mails. One mail at a time is filled, at most ten full ones a minute. A
// mail that is not full waits for further alerts, at each broker.
var mails = map[string]string{"timeout": "30s", "concurrency": "20", "collect": "20/6s", "rateLimit": "200/1m",
	"subject": "[Penstock] {{payload.Event}}: {{payload.ChannelID}}/{{payload.ConsumerID}}",
	"body": "Event:    {{payload.Event}}\nChannel:  {{payload.ChannelID}}\nConsumer: {{payload.ConsumerID}}\n" +
		"At:       {{payload.At}}\nReason:   {{payload.Reason}}\nRevive:   {{payload.ReviveURL}}\n"}

// Wanted is what the settings ask for.
type Wanted struct {
	Webhook bool
	Secret  string // signs the requests to the webhook; "": they are not signed
	Mail    bool
}

// A Keep stores consumers: a durable.Store.
type Keep interface {
	PutConsumer(ctx context.Context, p durable.ConsumerPut) (out durable.Consumer, created bool, err error)
	DeleteConsumer(ctx context.Context, channelID string, p durable.Put) (durable.Consumer, error)
	SetConsumerState(ctx context.Context, p durable.StateChange) (out durable.Consumer, changed bool, err error)
}

// Follow gives the channel ~alerts the consumers that the settings of this broker ask for, and takes the others away.
// Each broker does that when it starts, several of them at once may, and one that finds all as it is to be writes
// nothing.
func Follow(ctx context.Context, store Keep, policies *policy.Book, want Wanted, log *slog.Logger) error {
	f := follower{store, policies, log}
	own := map[string]string{"signingSecret": want.Secret}
	return errors.Join(
		f.follow(ctx, WebhookConsumer, webhookScheme, WebhookSetting, want.Webhook, common, posts, own),
		f.follow(ctx, MailConsumer, mailScheme, MailSetting, want.Mail, common, mails))
}

type follower struct {
	store    Keep
	policies *policy.Book
	log      *slog.Logger
}

func (f follower) follow(ctx context.Context, id, scheme, setting string, wanted bool,
	fields ...map[string]string) error {
	if !wanted {
		return f.end(ctx, id, setting)
	}
	url, push := scheme+":"+setting, durable.Push
	k, created, err := f.store.PutConsumer(ctx, durable.ConsumerPut{
		Put: durable.Put{ID: id, NewToken: rand.Text()}, ChannelID: ident.AlertsChannel, CallbackURL: &url, Type: &push,
		Policy: func(record string) (string, error) { return f.merge(record, fields) },
	})
	if err != nil {
		return err
	}
	if created {
		f.log.Info("alerts have a consumer of their own", "consumer", id, "setting", setting)
	}
	if k.State != durable.StateDead && k.State != durable.StateGone {
		return nil
	}
	_, revived, err := f.store.SetConsumerState(ctx, durable.StateChange{ConsumerNo: k.No, SinceMs: k.StateMs,
		From: []durable.ConsumerState{durable.StateDead, durable.StateGone}, To: durable.StateActive,
		Reason: "revived by the start of a broker", Forget: true, Release: true})
	if revived {
		f.log.Info("the start revives the consumer of alerts", "consumer", id, "state", k.State.String(), "reason",
			k.StateReason)
	}
	return err
}

// merge lays the fields over a record, which may be that of another release: fields that this one does not set go
// back to their defaults. What follows from a change of the secret stays.
func (f follower) merge(record string, fields []map[string]string) (string, error) {
	form := map[string]string{}
	for _, name := range policy.Names() {
		if name != "signingSecretPrevious" {
			form[name] = ""
		}
	}
	for _, some := range fields {
		for name, text := range some {
			form[name] = text
		}
	}
	return f.policies.Merge(record, form, time.Now())
}

// end deletes a consumer whose setting is empty, with its open jobs.
func (f follower) end(ctx context.Context, id, setting string) error {
	_, err := f.store.DeleteConsumer(ctx, ident.AlertsChannel, durable.Put{ID: id})
	if errors.Is(err, durable.ErrNotFound) {
		return nil
	}
	if err == nil {
		f.log.Warn("a consumer of alerts is deleted, with the alerts that it did not have yet: its setting is empty",
			"consumer", id, "setting", setting)
	}
	return err
}
