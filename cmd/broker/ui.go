package main

import (
	"net/netip"
	"time"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/feature/ui"
)

// newUI returns the dashboard; nil: there is none.
func (b *broker) newUI() api.Dashboard {
	if b.cfg.UI == "off" {
		return nil
	}
	payloads, _ := ui.ParsePayloads(b.cfg.UIPayloads) // checked
	return ui.New(ui.Options{AdminToken: b.cfg.AdminToken, Key: b.tokenKey, Version: version, Payloads: payloads,
		Stores: b.storeNames(), Store: b.name,
		HideTokens: !b.cfg.showTokens(),
		ReadOnly:   b.cfg.UI == "read-only", AllowDelete: b.cfg.AllowDelete, Frames: b.cfg.UIFrames, Bench: b.cfg.UIBench,
		Now: func() time.Time { return time.UnixMilli(b.node.NowMs()) }, Log: b.log,
		Client: b.cfg.proxies.Client, Failed: func(from netip.Addr) { b.lockout.Failed(from) },
		Limited: func(from netip.Addr) bool { return b.lockout.Limited(from) > 0 }})
}
