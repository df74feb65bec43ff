//go:build nats

package main

import (
	"github.com/penstock-broker/penstock/internal/feature/nats"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// natsSender is the sender of nats and tls callbacks.
func natsSender(callbacks egress.Policy, client *egress.Client) optionalSender {
	s := nats.New(nats.Options{Client: client, Callbacks: callbacks})
	return optionalSender{row: s.Row(), bounds: s.Bounds(), close: s.Close}
}
