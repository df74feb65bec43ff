package main

import (
	"context"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// newSQS returns the door for SQS clients; nil: it is closed.
func (b *broker) newSQS(policies *policy.Book, bodies *share.Bound) api.SQS {
	if b.cfg.SQS == "off" {
		return nil
	}
	var elsewhere func(ctx context.Context, channelID string) bool
	if r := b.router(); r != nil {
		elsewhere = r.Has
	}
	return sqs.New(sqs.Options{Elsewhere: elsewhere, Store: b.store, Catalogue: b.catalogue, Plane: b.plane,
		Policies: policies, NowMs: b.node.NowMs, TokenHeader: b.cfg.ConsumerTokenHeader, Bodies: bodies, Answers: b.answers,
		Registerer: b.registry, Log: b.log})
}
