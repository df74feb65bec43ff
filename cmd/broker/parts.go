package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/feature/stores"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A process has a broker for each store (package stores). The first one has the listeners and the catalogue of the
// installation; the others are parts of it, which answer the requests that its router leads to them.

const (
	// mostStores bounds the numbers of other stores, for ever. Each store has numbers of channels and consumers of its
	// own, which begin behind its number, shifted by numberBits.
	mostStores = 63
	numberBits = 26
	// openOtherWithin bounds what a start waits for another store, and reopenAfter is the pause between later tries.
	openOtherWithin = 20 * time.Second
	reopenAfter     = 2 * time.Second
)

// The settings that stores keep about each other: the number of the last store that the first one has named, those of
// each name behind namedStore, and in each other store the digest of its name.
const (
	lastStore  = "stores"
	namedStore = "store "
	ownName    = "store name"
)

// storesFolder has the data folders of the other stores, by their names. It is in that of the broker.
const storesFolder = "stores"

// sharedSecrets are the secrets of the first store that all stores have, so links and sessions of one count at all.
// That of journals is none: a journal is replayed into its own store.
var sharedSecrets = []string{"tokens", "audit fingerprints", "revive"}

// parseDSNs returns the DSNs of other stores by name. A comma separates two where a name and an equals sign follow.
func parseDSNs(text string) (map[string]string, error) {
	all, name := map[string]string{}, ""
	for i, part := range strings.Split(text, ",") {
		next, dsn, ok := strings.Cut(part, "=")
		next = strings.TrimSpace(next)
		switch {
		case ok && isStoreName(next):
			if _, twice := all[next]; twice {
				return nil, fmt.Errorf("names the store %s twice", next)
			}
			name, all[next] = next, dsn
		case i == 0:
			return nil, errors.New("must be name=DSN,name=DSN with names of 1 to 32 of a-z 0-9 -, which begin with a letter")
		default:
			all[name] += "," + part
		}
	}
	return all, nil
}

func isStoreName(s string) bool {
	if s == "" || len(s) > 32 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// checkOtherStores reads the DSNs of other stores.
func (c *config) checkOtherStores(f *faults) {
	const setting = "BROKER_MYSQL_DSNS"
	if c.MySQLDSNS == "" {
		return
	}
	var err error
	if c.stores, err = parseDSNs(c.MySQLDSNS); err != nil {
		f.add(setting, "%v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.stores)) {
		if err := durable.CheckDSN(c.stores[name]); err != nil {
			f.addStore(setting, "has a wrong DSN of the store %s: %v", name, err)
		}
	}
	if c.MySQLDSN == "" && f.fine("BROKER_MYSQL_DSN") {
		f.add(setting, "needs BROKER_MYSQL_DSN, the store with the catalogue")
	}
	if c.RedisURL == "" && f.fine("BROKER_REDIS_URL") {
		f.add(setting, "needs BROKER_REDIS_URL")
	}
}

// ofStore are the settings of the part of another store. What people are told, and what a file brings, is for the
// first one.
func (c config) ofStore(name string) config {
	c.MySQLDSN, c.storeName = c.stores[name], name
	c.MySQLDSNS, c.stores = "", nil
	c.SeedFile, c.seed = "", nil
	c.AlertTo, c.AlertWebhookURL, c.AlertWebhookSecret = nil, "", ""
	c.DataDir = filepath.Join(c.DataDir, storesFolder, name)
	return c
}

// eachStore are the settings of each store, the first one first.
func (c config) eachStore() iter.Seq[config] {
	return func(yield func(config) bool) {
		if !yield(c) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(c.stores)) {
			if !yield(c.ofStore(name)) {
				return
			}
		}
	}
}

// dsnSetting is the setting with the DSN.
func (c *config) dsnSetting() string {
	if c.storeName != "" {
		return "BROKER_MYSQL_DSNS: the store " + c.storeName
	}
	return "BROKER_MYSQL_DSN"
}

// otherStores are the parts of the other stores.
type otherStores struct {
	router *stores.Router
	raw    *slog.Logger // without the names of a catalogue

	mu    sync.Mutex
	parts map[string]*broker // those that were reached
}

// running returns the parts that were reached.
func (o *otherStores) running() []*broker {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.parts))
}

// newOthers makes the router, whose stores are all away.
func (b *broker) newOthers() {
	if len(b.cfg.stores) == 0 {
		return
	}
	o := stores.Options{Names: b.storeNames(), Store: b.store, Catalogue: b.catalogue, NowMs: b.node.NowMs,
		Refuse: api.Refuse, Log: b.log}
	if b.cfg.SQS != "off" {
		o.KeyIn = sqs.KeyIn
	}
	b.others = &otherStores{parts: map[string]*broker{}, router: stores.New(o)}
}

// registerOthers registers what the first store knows of the others.
func (b *broker) registerOthers() {
	if b.first != nil {
		return
	}
	b.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_stores_away",
		Help: "Stores of BROKER_MYSQL_DSNS that this broker cannot reach, or that take no writes."},
		func() float64 { return float64(len(b.awayStores())) }))
}

// router leads requests to the stores; nil: there is one.
func (b *broker) router() *stores.Router {
	switch {
	case b.first != nil:
		return b.first.others.router
	case b.others != nil:
		return b.others.router
	}
	return nil
}

// storeNames are the names of the other stores.
func (b *broker) storeNames() []string { return slices.Sorted(maps.Keys(b.lead().cfg.stores)) }

// openOthers opens the other stores. One that cannot be reached is opened later; one that may not be used refuses the
// start.
func (b *broker) openOthers(ctx context.Context, raw *slog.Logger) error {
	if b.others == nil {
		return nil
	}
	b.others.raw = raw
	ctx, cancel := context.WithTimeout(ctx, openOtherWithin)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, len(b.cfg.stores))
	for name := range b.cfg.stores {
		wg.Go(func() {
			_, err := b.openPart(ctx, name)
			switch {
			case err == nil:
			case errors.Is(err, errSettings), !durable.Away(err):
				failed <- err
			default:
				b.log.Warn("a store cannot be reached; the broker starts without it, and its channels are answered 503 until it "+
					"is there", "store", name, "error", err)
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// openPart opens another store, and joins it to the router.
func (b *broker) openPart(ctx context.Context, name string) (*broker, error) {
	var names catalogue.LogNames
	log := b.others.raw.With("store", name)
	log = slog.New(names.Handler(log.Handler()))
	p := &broker{cfg: b.cfg.ofStore(name), log: log, failed: make(chan error, 1), first: b, name: name}
	if err := p.open(ctx, &names); err != nil {
		p.close()
		return nil, err
	}
	p.client.Listens(append([]net.Addr{b.listener.Addr()}, b.front.Addrs()...)...)
	b.others.mu.Lock()
	b.others.parts[name] = p
	b.others.mu.Unlock()
	b.others.router.Join(name, &stores.Part{Store: p.store, Catalogue: p.catalogue, API: p.api, Announce: p.announce})
	b.others.router.Follow(ctx)
	return p, nil
}

// runOthers runs the parts, and opens those whose stores were away. stop ends them, and waits; it may be called twice.
func (b *broker) runOthers(ctx context.Context) (stop func()) {
	if b.others == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "copies for other stores", b.others.router.Run) })
	for name := range b.cfg.stores {
		wg.Go(func() { b.runPart(ctx, name) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// runPart opens another store, if that was not done, and runs its part until ctx ends.
func (b *broker) runPart(ctx context.Context, name string) {
	b.others.mu.Lock()
	p := b.others.parts[name]
	b.others.mu.Unlock()
	for p == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reopenAfter):
		}
		within, cancel := context.WithTimeout(ctx, openTimeout)
		var err error
		p, err = b.openPart(within, name)
		cancel()
		if err != nil && (errors.Is(err, errSettings) || !durable.Away(err)) && ctx.Err() == nil {
			b.fail(err)
			return
		}
	}
	if err := p.Run(ctx); err != nil {
		b.fail(fmt.Errorf("the store %s: %w", name, err))
	}
}

// fail ends this process.
func (b *broker) fail(err error) {
	select {
	case b.failed <- err:
	default: // it is already stopping
	}
}

// belong checks that the store belongs where the settings have it, and gives another store what it shares with the
// first one. The stores remember each other, so two whose DSNs were swapped are noticed.
func (b *broker) belong(ctx context.Context) error {
	named, err := b.store.Setting(ctx, ownName)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if b.first == nil {
		if named != 0 {
			return fmt.Errorf("%w: BROKER_MYSQL_DSN: the database is another store of an installation: it belongs into "+
				"BROKER_MYSQL_DSNS", errSettings)
		}
		return b.placedStores(ctx)
	}
	wrong := func(what string) error { return fmt.Errorf("%w: %s %s", errSettings, b.cfg.dsnSetting(), what) }
	first := b.first.store
	same, err := sameStore(ctx, first, b.store)
	switch {
	case err != nil:
		return startFailure(err)
	case same:
		return wrong("is the store of BROKER_MYSQL_DSN, or a copy of it")
	case named != 0 && named != nameDigest(b.name):
		return wrong("has another name in its database: the DSNs of two stores were exchanged, or a store was renamed")
	}
	for _, name := range sharedSecrets {
		secret, err := first.Secret(ctx, name)
		if err == nil {
			err = b.store.AdoptSecret(ctx, name, secret)
		}
		if errors.Is(err, durable.ErrOtherSecret) {
			return wrong("is of another installation: its database was used before")
		}
		if err != nil {
			return startFailure(err)
		}
	}
	if named != 0 {
		return nil
	}
	no, err := b.first.numberOf(ctx, b.name)
	if err == nil {
		from := uint32(no) << numberBits
		err = b.store.Touch(ctx, durable.Numbers{Channel: from, Consumer: from})
	}
	if err == nil {
		_, err = b.store.SwapSetting(ctx, ownName, 0, nameDigest(b.name))
	}
	return startFailure(err)
}

// sameStore reports whether two stores are one: the secret of journals is never shared.
func sameStore(ctx context.Context, a, b *durable.Store) (bool, error) {
	of, err := a.Secret(ctx, "journal")
	if err != nil {
		return false, err
	}
	other, err := b.Secret(ctx, "journal")
	return string(of) == string(other), err
}

func nameDigest(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8])>>1) | 1
}

// numberOf returns the number of another store, from 1, which it keeps for ever.
func (b *broker) numberOf(ctx context.Context, name string) (int64, error) {
	for {
		no, err := b.store.Setting(ctx, namedStore+name)
		if err != nil || no != 0 {
			return no, err
		}
		last, err := b.store.Setting(ctx, lastStore)
		if err != nil {
			return 0, err
		}
		if last >= mostStores {
			return 0, fmt.Errorf("%w: BROKER_MYSQL_DSNS: an installation has at most %d other stores", errSettings, mostStores)
		}
		swapped, err := b.store.SwapSetting(ctx, lastStore, last, last+1)
		if err == nil && swapped {
			_, err = b.store.SwapSetting(ctx, namedStore+name, 0, last+1)
		}
		if err != nil {
			return 0, err
		}
	}
}

// placedStores refuses settings that leave out a store which has channels.
func (b *broker) placedStores(ctx context.Context) error {
	placed, err := b.store.PlacedStores(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	for _, name := range placed {
		if _, ok := b.cfg.stores[name]; !ok {
			return fmt.Errorf("%w: BROKER_MYSQL_DSNS does not name the store %s, which has channels", errSettings, name)
		}
	}
	return nil
}

// keyPrefix is that of the keys of a store in Redis.
func (b *broker) keyPrefix() string {
	if b.name == "" {
		return redisq.DefaultPrefix
	}
	return redisq.DefaultPrefix + b.name + ":"
}

// forwardOwn stores a message that the broker makes. Those of the channels of the broker are all in the first store,
// under IDs that those of no other store have.
func (b *broker) forwardOwn(ctx context.Context, m *durable.Message) error {
	if b.first != nil {
		own := b.catalogue.ChannelByNo(m.ChannelNo)
		if own == nil { // the number is of the first store
			own = b.first.catalogue.ChannelByNo(m.ChannelNo)
		}
		if own != nil && slices.Contains([]string{ident.AlertsChannel, ident.StatusChannel, ident.AuditChannel}, own.ID) {
			to := b.first.catalogue.Channel(own.ID)
			if to == nil {
				return fmt.Errorf("the channel %s does not exist", own.ID)
			}
			there := *m
			there.ChannelNo, there.Key = to.No, m.Key+"-"+b.name
			return b.first.plane.Forward(ctx, &there)
		}
	}
	return b.plane.Forward(ctx, m)
}

// lead is the part of the first store.
func (b *broker) lead() *broker {
	if b.first != nil {
		return b.first
	}
	return b
}

// awayStores are the other stores that cannot be reached, or take no writes.
func (b *broker) awayStores() []string {
	if b.others == nil {
		return nil
	}
	away := b.others.router.Away()
	for _, p := range b.others.running() {
		if p.node.Writable() != nil {
			away = append(away, p.name)
		}
	}
	slices.Sort(away)
	return away
}

// warning is what /readyz tells an operator; "": nothing.
func (b *broker) warning() string {
	text := b.warnings.text()
	if away := b.awayStores(); len(away) > 0 {
		if text != "" {
			text += ". "
		}
		text += "Stores that cannot be reached, or take no writes: " + strings.Join(away, ", ") +
			". Their channels are answered 503; all others are as before"
	}
	return text
}

// gatherer gathers the metrics of all stores. Those of another store have the label store.
func (b *broker) gatherer() prometheus.Gatherer {
	if b.others == nil {
		return b.registry
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all := prometheus.Gatherers{b.registry}
		for _, p := range b.others.running() {
			all = append(all, labelStore(p.registry, p.name))
		}
		return all.Gather()
	})
}

// labelStore adds the label of a store to metrics.
func labelStore(of prometheus.Gatherer, store string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := of.Gather()
		label := "store"
		for _, f := range families {
			for _, m := range f.Metric {
				if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == label }) {
					m.Label = append(m.Label, &dto.LabelPair{Name: &label, Value: &store})
				}
			}
		}
		return families, err
	})
}
