package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// A Store is the part of durable.Store used here.
type Store interface {
	AuditEntries(ctx context.Context, q durable.AuditQuery) (page []auditlog.Entry, next uint64, err error)
	AuditHead(ctx context.Context) (auditlog.Entry, error)
	Setting(ctx context.Context, name string) (int64, error)
	SwapSetting(ctx context.Context, name string, old, value int64) (bool, error)
}

// Options assemble a Feed.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Owns      func(no uint32) bool // whether this broker looks after that channel
	// Publish stores a message that the broker makes. Its error is that of the store's Insert.
	Publish func(ctx context.Context, m *durable.Message) error
	Log     *slog.Logger
}

const (
	// Pause is the time between two looks at the log.
	Pause = time.Second
	// perRound bounds the entries that one look publishes.
	perRound = 100
	// publishFor bounds one look.
	publishFor = 30 * time.Second
	// place is the setting with one more than the number of the last entry on the channel; 0: nobody listens.
	place = "audit channel"
)

// A Feed publishes the entries of the audit log on ~audit, in their order, from the one on that attached its first
// consumer. Without a consumer nothing is published and nothing is read.
//
// The place in the log is in the store. A broker that dies after it has published and before it has moved the place
// publishes again under the same message ID, which changes nothing.
type Feed struct {
	o      Options
	silent bool     // nobody listens, and the place in the store says so
	heard  []uint32 // numbers of the consumers of the last round
}

// NewFeed returns a feed. Nothing runs before Run.
func NewFeed(o Options) *Feed { return &Feed{o: o} }

// Run works until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	guard.Loop(ctx, "audit channel", func(ctx context.Context) {
		failing := false
		tick := time.NewTicker(Pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := f.Round(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				f.o.Log.Warn("the channel of the audit log is late; the broker tries again", "error", err)
			}
			failing = err != nil
		}
	})
}

// Round publishes the entries that are new.
func (f *Feed) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishFor)
	defer cancel()
	ch := f.o.Catalogue.Channel(ident.AuditChannel)
	if ch == nil || !f.o.Owns(ch.No) {
		f.silent, f.heard = false, nil
		return nil
	}
	listeners := f.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers))
	if len(listeners) == 0 {
		f.heard = nil
		return f.rest(ctx)
	}
	f.silent = false
	others := f.replaced(listeners)
	was, err := f.o.Store.Setting(ctx, place)
	if err != nil {
		return err
	}
	first := uint64(was)
	if was == 0 || others {
		if first, err = f.begin(ctx, listeners); err != nil {
			return err
		}
	}
	entries, _, err := f.o.Store.AuditEntries(ctx, durable.AuditQuery{First: first, Limit: perRound})
	if err != nil {
		return err
	}
	for i := range entries {
		if err := f.publish(ctx, ch.No, &entries[i]); err != nil {
			return err
		}
		first = entries[i].No + 1
	}
	if int64(first) == was {
		return nil
	}
	_, err = f.o.Store.SwapSetting(ctx, place, was, int64(first)) // another broker may have moved it
	return err
}

// replaced reports whether there are other listeners than in the last round, and none of those.
func (f *Feed) replaced(listeners []*durable.Consumer) bool {
	before := f.heard
	f.heard = nil
	others := len(before) > 0
	for _, k := range listeners {
		f.heard = append(f.heard, k.No)
		others = others && !slices.Contains(before, k.No)
	}
	return others
}

// rest notes that nobody listens, once.
func (f *Feed) rest(ctx context.Context) error {
	if f.silent {
		return nil
	}
	was, err := f.o.Store.Setting(ctx, place)
	if err == nil && was != 0 {
		_, err = f.o.Store.SwapSetting(ctx, place, was, 0)
	}
	f.silent = err == nil
	return err
}

// begin returns the number of the first entry for new listeners: the one that made the first of them. Without one in
// the log, it is the next entry.
func (f *Feed) begin(ctx context.Context, listeners []*durable.Consumer) (uint64, error) {
	head, err := f.o.Store.AuditHead(ctx)
	if err != nil {
		return 0, err
	}
	first := head.No + 1
	for _, k := range listeners {
		made, _, err := f.o.Store.AuditEntries(ctx, durable.AuditQuery{Back: true, Limit: perRound,
			Resource: "/channel/" + ident.AuditChannel + "/consumer/" + k.ID})
		if err != nil {
			return 0, err
		}
		for _, e := range made {
			if len(e.Before) == 0 && len(e.After) > 0 { // made, and not deleted since
				first = min(first, e.No)
				break
			}
		}
	}
	return first, nil
}

func (f *Feed) publish(ctx context.Context, channel uint32, e *auditlog.Entry) error {
	body, err := json.Marshal(apitype.ViewAudit(e))
	if err != nil {
		return err
	}
	err = f.o.Publish(ctx, &durable.Message{ChannelNo: channel, Key: "audit-" + strconv.FormatUint(e.No, 10),
		ContentType: apitype.MediaJSON, Payload: body})
	switch {
	case errors.Is(err, durable.ErrDuplicate), errors.Is(err, durable.ErrConflict): // published before
		return nil
	case errors.Is(err, durable.ErrRejected):
		f.o.Log.Error("an entry of the audit log cannot be published", "number", e.No, "error", err)
		return nil
	}
	return err
}
