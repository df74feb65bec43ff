package audit_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/audit"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// A world is a store with an audit log, and a feed of it.
type world struct {
	t       *testing.T
	store   *durable.Store
	cat     *catalogue.Catalogue
	feed    *audit.Feed
	owns    bool
	refused error
	told    []string // message IDs
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, owns: true}
	dir := t.TempDir()
	tables.SQLite(t, dir)
	var err error
	w.store, err = durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	_, _, err = w.store.PutChannel(t.Context(), durable.Put{ID: ident.AuditChannel, NewToken: "t"})
	require.NoError(t, err)
	w.cat = catalogue.New(w.store, slog.Default())
	w.begin()
	return w
}

// begin is the start of a broker.
func (w *world) begin() {
	w.feed = audit.NewFeed(audit.Options{Store: w.store, Catalogue: w.cat, Owns: func(uint32) bool { return w.owns },
		Log: slog.Default(), Publish: func(_ context.Context, m *durable.Message) error {
			if w.refused == nil {
				w.told = append(w.told, strings.TrimPrefix(m.Key, "audit-"))
			}
			return w.refused
		}})
}

func (w *world) as(action, resource string) context.Context {
	d := auditlog.NewDeed("ann", "", action, resource)
	d.Portray = audit.Portray(auditlog.Printer{Key: []byte("k")})
	return auditlog.With(w.t.Context(), d)
}

// do writes an entry.
func (w *world) do() { require.NoError(w.t, w.store.Audit(w.as("do", "/channel/c"))) }

// attach and detach are one entry each.
func (w *world) attach(id string) {
	pull := durable.Pull
	_, _, err := w.store.PutConsumer(w.as("put consumer", "/channel/~audit/consumer/"+id), durable.ConsumerPut{
		Put: durable.Put{ID: id, NewToken: "t"}, ChannelID: ident.AuditChannel, Type: &pull})
	require.NoError(w.t, err)
}

func (w *world) detach(id string) {
	_, err := w.store.DeleteConsumer(w.as("delete consumer", "/channel/~audit/consumer/"+id), ident.AuditChannel,
		durable.Put{ID: id})
	require.NoError(w.t, err)
}

// round is a round, which tells of some entries.
func (w *world) round(want ...string) {
	w.t.Helper()
	w.told = nil
	require.NoError(w.t, w.cat.Refresh(w.t.Context()))
	require.NoError(w.t, w.feed.Round(w.t.Context()))
	require.Equal(w.t, want, w.told)
}

func TestTheFeedTellsOfEntriesWhileSomebodyListens(t *testing.T) {
	w := newWorld(t)
	w.do() // 1
	w.round()
	w.attach("a") // 2
	w.do()
	w.round("2", "3")
	w.round()
	w.do() // 4
	w.owns = false
	w.round()
	w.owns = true
	w.round("4")
	w.attach("b") // 5
	w.round("5")
	w.detach("a") // 6
	w.round("6")
	w.detach("b") // 7
	w.do()        // 8
	w.round()
	w.do() // 9
	w.begin()
	w.round()
	w.attach("b") // 10
	w.round("10")
	w.detach("b") // 11
	w.do()        // 12
	w.attach("c") // 13: between two rounds
	w.round("13")
	w.begin() // a start goes on
	w.do()
	w.round("14")
}

func TestTheFeedGoesOnWhereItFailed(t *testing.T) {
	w := newWorld(t)
	w.attach("a")
	w.do()
	require.NoError(t, w.cat.Refresh(t.Context()))
	w.refused = errors.New("the store is away")
	require.ErrorIs(t, w.feed.Round(t.Context()), w.refused)
	w.refused = nil
	w.round("1", "2")
	for _, passes := range []error{durable.ErrDuplicate, durable.ErrRejected} {
		w.do()
		w.refused = passes
		require.NoError(t, w.feed.Round(t.Context()))
		w.refused = nil
		w.round()
	}
	for range 150 {
		w.do()
	}
	w.told = nil
	require.NoError(t, w.feed.Round(t.Context()))
	require.NoError(t, w.feed.Round(t.Context()))
	require.Len(t, w.told, 150)
}
