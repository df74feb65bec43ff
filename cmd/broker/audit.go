package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/audit"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// newPrinter returns what makes fingerprints of secrets, and the passes of the fail-safe, under a key that all brokers
// share.
func newPrinter(ctx context.Context, store *durable.Store) (auditlog.Printer, error) {
	key, err := store.Secret(ctx, "audit fingerprints")
	return auditlog.Printer{Key: key}, err
}

// newFeed returns the part of this broker in the channel of the audit log.
func (b *broker) newFeed() *audit.Feed {
	return audit.NewFeed(audit.Options{Store: b.store, Catalogue: b.lead().catalogue, Owns: b.node.Owns,
		Publish: b.forwardOwn, Log: b.log})
}

// A seedStore writes what the seed file or an import changes into the audit log.
type seedStore struct {
	*durable.Store
	portray func(row any) any
	who     string
}

func (s seedStore) as(ctx context.Context, action, resource string) context.Context {
	d := auditlog.NewDeed(s.who, "", action, resource)
	d.Portray = s.portray
	return auditlog.With(ctx, d)
}

// PutProducer implements seedfile.Store, as the other two do.
func (s seedStore) PutProducer(ctx context.Context, p durable.Put) (durable.Producer, bool, error) {
	return s.Store.PutProducer(s.as(ctx, "put producer", "/producer/"+p.ID), p)
}

func (s seedStore) PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error) {
	held, err := s.PlaceOf(ctx, p.ID)
	switch {
	case err == nil && held.Store != "":
		return durable.Channel{}, false, fmt.Errorf("%w: the channel %s is in the store %s, and this is for the store of "+
			"BROKER_MYSQL_DSN", durable.ErrRejected, p.ID, held.Store)
	case err != nil && !errors.Is(err, durable.ErrNotFound):
		return durable.Channel{}, false, err
	}
	return s.Store.PutChannel(s.as(ctx, "put channel", "/channel/"+p.ID), p)
}

func (s seedStore) PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error) {
	return s.Store.PutConsumer(s.as(ctx, "put consumer", "/channel/"+p.ChannelID+"/consumer/"+p.ID), p)
}
