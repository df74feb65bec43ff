package main

import (
	"context"
	"crypto/rand"
	"errors"
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
	if _, err := c.alertMail(); err != nil {
		var wrong alerts.MailErrors
		_ = errors.As(err, &wrong) // always
		for _, w := range wrong {
			f.add("BROKER_ALERT_"+w.Setting, "%v", w.Err)
		}
	}
	if c.AlertSMTPURL == "" && f.fine("BROKER_ALERT_SMTP_URL") {
		if c.AlertFrom != "" {
			f.add("BROKER_ALERT_FROM", "needs BROKER_ALERT_SMTP_URL")
		}
		if len(c.AlertTo) > 0 {
			f.add("BROKER_ALERT_TO", "needs BROKER_ALERT_SMTP_URL")
		}
	}
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

// alertMail returns the sender of alert mails; nil: there are none.
func (c *config) alertMail() (*alerts.Mail, error) {
	if c.AlertSMTPURL == "" {
		return nil, nil
	}
	return alerts.NewMail(c.AlertSMTPURL, c.AlertFrom, c.AlertTo, nil)
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

// newAlerts makes the part of this broker in alerting. The settings are checked.
func (b *broker) newAlerts(states *consumerstate.Keeper, explainer *why.Explainer,
	registry *prometheus.Registry) *alerts.Alerts {
	o := alerts.Options{
		Store: b.store, Catalogue: b.catalogue, NowMs: b.node.NowMs, Publish: b.plane.Forward, Link: states.AlertLink,
		Metrics: registry, Log: b.log,
	}
	if m, err := b.cfg.alertMail(); err == nil && m != nil {
		o.Mail = m
	}
	if b.cfg.AlertWebhookURL != "" {
		secret, _ := policy.ParseSecret(b.cfg.AlertWebhookSecret) // checked
		o.Webhook = &alerts.Webhook{URL: b.cfg.AlertWebhookURL, Secret: secret, Client: b.client.Web(egress.Configured),
			Agent: b.cfg.UserAgent}
	}
	if b.cfg.AlertDLQGrowth > 0 {
		o.Growth = &alerts.Growth{Jobs: b.cfg.AlertDLQGrowth, Window: b.cfg.AlertDLQWindow, Owns: b.node.Owns}
	}
	o.Alarms = &alerts.Alarms{Samples: b.sampler, Policies: b.policies, Contacts: b.presence, NoWorker: explainer.NoWorker,
		NoWorkerAfter: b.cfg.NoWorkerAfter, Retention: b.cfg.Retention, Owns: b.node.Owns}
	return alerts.New(o)
}
