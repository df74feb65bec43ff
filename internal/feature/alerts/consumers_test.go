package alerts

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// installation are defaults that would lose alerts.
func installation(t *testing.T) *policy.Book {
	p := policy.Policy{Timeout: time.Minute, TombstoneAfter: 1, TTL: time.Second, Adaptive: true}
	for field, text := range map[string]string{"retryOn": "5xx", "dlq": "expire:1s", "rateLimit": "1/1h",
		"concurrency": "1"} {
		require.NoError(t, policy.Set(&p, field, text))
	}
	return policy.NewBook(p)
}

const (
	oneSecret   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func (w *world) follow(want Wanted) (webhook, mail *durable.Consumer) {
	w.t.Helper()
	require.NoError(w.t, Follow(context.Background(), w.store, installation(w.t), want, slog.New(slog.DiscardHandler)))
	require.NoError(w.t, w.cat.Refresh(context.Background()))
	return w.cat.Consumer(ident.AlertsChannel, WebhookConsumer), w.cat.Consumer(ident.AlertsChannel, MailConsumer)
}

// The settings of a broker decide which consumers the channel of alerts has. A start that changes nothing writes
// nothing, and so do several at once.
func TestConsumersFollowTheSettings(t *testing.T) {
	w := newWorld(t)
	webhook, mail := w.follow(Wanted{})
	require.Nil(t, webhook)
	require.Nil(t, mail)
	version := w.cat.Version()
	w.follow(Wanted{})
	require.Equal(t, version, w.cat.Version())

	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			_ = Follow(context.Background(), w.store, installation(t), Wanted{Webhook: true, Secret: oneSecret, Mail: true},
				slog.New(slog.DiscardHandler))
		})
	}
	starts.Wait()
	webhook, mail = w.follow(Wanted{Webhook: true, Secret: oneSecret, Mail: true})
	require.Equal(t, "alert-webhook:BROKER_ALERT_WEBHOOK_URL", webhook.CallbackURL)
	require.Equal(t, "alert-mail:BROKER_ALERT_TO", mail.CallbackURL)
	book := installation(t)
	for _, k := range []*durable.Consumer{webhook, mail} {
		p := book.Of(k.Policy)
		total := time.Duration(0)
		for attempt := range p.MaxRetries {
			total += p.Delay(attempt + 1)
		}
		require.Equal(t, 6*time.Hour+3*time.Minute, total, k.ID)
		require.Equal(t, policy.DLQKeep, p.DLQ.Kind)
		require.Zero(t, p.TTL)
		require.Zero(t, p.TombstoneAfter)
		require.False(t, p.Adaptive)
	}
	require.Equal(t, policy.Retry, book.Of(webhook.Policy).Judge(policy.Answer{Status: 404, Complete: true}, 1).Meaning)
	require.EqualValues(t, oneSecret, "whsec_"+strings.TrimPrefix(string(book.Of(webhook.Policy).SigningSecret), "whsec_"))
	require.Zero(t, book.Of(webhook.Policy).RateLimit)
	require.Equal(t, 20, book.Of(mail.Policy).Collect.N)
	require.Equal(t, 200, book.Of(mail.Policy).RateLimit.N)

	version = w.cat.Version()
	w.follow(Wanted{Webhook: true, Secret: oneSecret, Mail: true})
	require.Equal(t, version, w.cat.Version(), "nothing was written")

	webhook, _ = w.follow(Wanted{Webhook: true, Secret: otherSecret, Mail: true})
	p := book.Of(webhook.Policy)
	require.NotEmpty(t, p.SigningSecretPrevious, "the old secret signs for a while")
	version = w.cat.Version()
	w.follow(Wanted{Webhook: true, Secret: otherSecret, Mail: true})
	require.Equal(t, version, w.cat.Version())
	webhook, _ = w.follow(Wanted{Webhook: true, Mail: true})
	p = book.Of(webhook.Policy)
	require.Empty(t, p.SigningSecret)
	require.Empty(t, p.SigningSecretPrevious)

	no := webhook.No
	webhook, mail = w.follow(Wanted{Mail: true})
	require.Nil(t, webhook)
	require.NotNil(t, mail)
	webhook, _ = w.follow(Wanted{Webhook: true, Mail: true})
	require.NotEqual(t, no, webhook.No)
}

// A start ends what a wrong setting led to, and no pause.
func TestAStartRevivesConsumersOfAlerts(t *testing.T) {
	w := newWorld(t)
	webhook, mail := w.follow(Wanted{Webhook: true, Mail: true})
	set := func(k *durable.Consumer, to durable.ConsumerState) {
		_, changed, err := w.store.SetConsumerState(context.Background(), durable.StateChange{ConsumerNo: k.No,
			From: []durable.ConsumerState{durable.StateActive}, To: to, Reason: "x"})
		require.NoError(t, err)
		require.True(t, changed)
	}
	set(webhook, durable.StateGone)
	set(mail, durable.StateDead)
	webhook, mail = w.follow(Wanted{Webhook: true, Mail: true})
	require.Equal(t, durable.StateActive, webhook.State)
	require.Equal(t, durable.StateActive, mail.State)
	set(webhook, durable.StatePaused)
	webhook, _ = w.follow(Wanted{Webhook: true, Mail: true})
	require.Equal(t, durable.StatePaused, webhook.State)
}

// That the dead letters of a consumer of alerts grow is told to the others alone.
func TestGrowingDeadLettersOfAlertsFeedThemselvesNoFurther(t *testing.T) {
	w := newWorld(t)
	webhook, mail := w.follow(Wanted{Webhook: true, Mail: true})
	a, stop := w.broker(nil)
	for _, k := range []*durable.Consumer{webhook, &w.k} {
		require.NoError(t, a.raise(context.Background(), durable.DLQGrowing, k.No, "many"))
		require.NoError(t, a.close(context.Background(), durable.DLQGrowing, k.No, "none"))
		require.NoError(t, slow(a, k.No, "", time.Now().UnixMilli()))
	}
	w.eventually("the messages", func() bool { return w.count() == 6 })
	stop()
	for _, m := range w.published {
		about := strings.Contains(m.Key, "growing-") && strings.Contains(string(m.Payload), WebhookConsumer)
		if !about {
			require.Empty(t, m.Addressed, m.Key)
			continue
		}
		require.False(t, m.Addressed.Has(webhook.Position), m.Key)
		require.True(t, m.Addressed.Has(mail.Position), m.Key)
	}
	w.follow(Wanted{Webhook: true})
	require.NoError(t, a.raise(context.Background(), durable.DLQGrowing, webhook.No, "many"))
	_, err := a.publishRound(context.Background())
	require.NoError(t, err)
	require.Equal(t, durable.NoPositions, w.published[6].Addressed, "it is on the channel only")
}
