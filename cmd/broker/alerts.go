package main

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/alerts"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/consumerstate"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// checkAlerts checks where alerts go besides the channel.
func (c *config) checkAlerts(f *faults) {
	c.checkMail(f)
	if c.AlertWebhookURL != "" {
		callbacks, err := egress.ParsePolicy(c.Egress, c.EgressAllow)
		if err == nil && callbacks.CheckURL(c.AlertWebhookURL) != nil { // the reason may quote a secret
			f.add("BROKER_ALERT_WEBHOOK_URL", "must be an absolute http or https URL that BROKER_EGRESS allows, without user "+
				"name and fragment")
		}
	} else if c.AlertWebhookSecret != "" && f.fine("BROKER_ALERT_WEBHOOK_URL") {
		f.add("BROKER_ALERT_WEBHOOK_SECRET", "needs BROKER_ALERT_WEBHOOK_URL")
	}
	if _, err := policy.ParseSecret(c.AlertWebhookSecret); err != nil {
		f.add("BROKER_ALERT_WEBHOOK_SECRET", "must be whsec_ and the standard base64 of 24 to 64 bytes")
	}
	if c.AlertDLQGrowth < 0 || c.AlertDLQGrowth > alerts.MaxGrowth {
		f.add("BROKER_ALERT_DLQ_GROWTH", "must be from 0 to %d, not %d", alerts.MaxGrowth, c.AlertDLQGrowth)
	}
	if c.AlertDLQWindow < time.Second || c.AlertDLQWindow > 24*time.Hour {
		f.add("BROKER_ALERT_DLQ_WINDOW", "must be from 1s to 24h, not %v", c.AlertDLQWindow)
	}
}

// makeSystemChannels makes the channels of the broker itself, unless another start has made them.
func (b *broker) makeSystemChannels(ctx context.Context) error {
	for _, id := range []string{ident.AlertsChannel, ident.StatusChannel, ident.AuditChannel} {
		if _, _, err := b.store.PutChannel(ctx, durable.Put{ID: id, NewToken: rand.Text()}); err != nil {
			return err
		}
	}
	return nil
}

// followAlertSettings gives ~alerts the consumers that the settings ask for. The settings are checked.
func (b *broker) followAlertSettings(ctx context.Context) error {
	return alerts.Follow(ctx, b.store, policy.NewBook(b.cfg.policy()), alerts.Wanted{Webhook: b.cfg.AlertWebhookURL != "",
		Secret: b.cfg.AlertWebhookSecret, Mail: b.cfg.AlertSMTPURL != "" && len(b.cfg.AlertTo) > 0}, b.log)
}

// newAlerts makes the part of this broker in alerting. The settings are checked.
func (b *broker) newAlerts(states *consumerstate.Keeper, explainer *why.Explainer,
	registry *prometheus.Registry) *alerts.Alerts {
	o := alerts.Options{
		Store: b.store, Catalogue: b.catalogue, NowMs: b.node.NowMs, Publish: b.forwardOwn, Link: states.AlertLink,
		Metrics: registry, Log: b.log,
	}
	if b.cfg.AlertDLQGrowth > 0 {
		o.Growth = &alerts.Growth{Jobs: b.cfg.AlertDLQGrowth, Window: b.cfg.AlertDLQWindow, Owns: b.node.Owns}
	}
	o.Alarms = &alerts.Alarms{Samples: b.sampler, Policies: b.policies, Contacts: b.presence, NoWorker: explainer.NoWorker,
		NoWorkerAfter: b.cfg.NoWorkerAfter, Retention: b.cfg.Retention, Owns: b.node.Owns}
	return alerts.New(o)
}
