//go:build !nats

package main

import (
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// natsSender is that this build has no sender of nats and tls callbacks.
func natsSender(egress.Policy, *egress.Client) optionalSender {
	return optionalSender{row: push.Absent("a build with the tag nats (make build TAGS=nats)", "nats", "tls"),
		close: func() {}}
}
