package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/internal/feature/statusevents"
)

// newStatusEvents makes the part of this broker in sending events to producers.
func (b *broker) newStatusEvents(registry *prometheus.Registry) *statusevents.Collector {
	return statusevents.New(statusevents.Options{
		Store: b.store, Catalogue: b.catalogue, Owns: b.node.Owns, IDs: b.node.IDs().Next, Publish: b.forwardOwn,
		Ensure: b.responses.Ensure, Metrics: registry, Log: b.log,
	})
}
