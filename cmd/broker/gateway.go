package main

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/gateway"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// checkGateway reads the settings of the gateway.
func (c *config) checkGateway(f *faults) {
	if c.GatewayTolerance < time.Second || c.GatewayTolerance > 24*time.Hour {
		f.add("BROKER_GATEWAY_TOLERANCE", "must be 1s to 24h")
	}
	for _, path := range c.GatewayExempt {
		if !strings.HasPrefix(path, "/") {
			f.add("BROKER_GATEWAY_EXEMPT", "has beginnings of paths, which begin with /, separated by commas")
		}
	}
	if c.GatewaySecret == "" {
		return
	}
	key, err := base64.StdEncoding.DecodeString(c.GatewaySecret)
	if err != nil || len(key) < gateway.LeastSecret {
		f.add("BROKER_GATEWAY_SECRET", "must be base64 of %d bytes or more: openssl rand -base64 32 makes one",
			gateway.LeastSecret)
		return
	}
	c.gatewayKey = key
}

// newGateway returns what demands a signature of each request; nil: none is needed.
func (b *broker) newGateway(bodies *share.Bound) *gateway.Gateway {
	if b.cfg.gatewayKey == nil {
		return nil
	}
	return &gateway.Gateway{Secret: b.cfg.gatewayKey, Tolerance: b.cfg.GatewayTolerance, Exempt: b.cfg.GatewayExempt,
		MaxBody: b.cfg.maxBody(), Bodies: bodies, Proxies: b.cfg.proxies, Now: time.Now}
}
