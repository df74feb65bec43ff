package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/alerts"
	"github.com/penstock-broker/penstock/internal/feature/statusevents"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// newStatusEvents makes the part of this broker in sending events to producers.
func (b *broker) newStatusEvents(callbacks egress.Policy, registry *prometheus.Registry) *statusevents.Collector {
	return statusevents.New(statusevents.Options{
		Store: b.store, Catalogue: b.catalogue, Owns: b.node.Owns, IDs: b.node.IDs().Next, Publish: b.forwardOwn,
		Post: func(ctx context.Context, p *durable.Producer, id string, body []byte) error {
			to := policy.SenderOf(p.Settings)
			if callbacks.CheckURL(string(to.ReplyURL)) != nil { // the reason may quote a secret
				return errors.New("the broker may not post to this replyUrl")
			}
			w := alerts.Webhook{URL: string(to.ReplyURL), Secret: to.SigningSecret, Client: b.client.Web(egress.Configured),
				Agent: b.cfg.UserAgent}
			return w.Post(egress.For(ctx, share.Producer(p.No)), id, body)
		},
		Metrics: registry, Log: b.log,
	})
}
