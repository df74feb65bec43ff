package stores

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// An answering API puts channels into its store, or fails.
type answering struct {
	store *durable.Store
	fails error
	seen  []string // URIs
}

func (a *answering) Serve(rc *fasthttp.RequestCtx) {
	a.seen = append(a.seen, string(rc.RequestURI()))
	rc.SetStatusCode(fasthttp.StatusNoContent)
}

func (a *answering) PutChannel(context.Context, *fasthttp.RequestCtx) error { return a.fails }

// A world is a first store and another one, with their catalogues.
type world struct {
	t      *testing.T
	first  *durable.Store
	two    *durable.Store
	cats   [2]*catalogue.Catalogue
	api    *answering
	router *Router
	nowMs  int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nowMs: 1_000_000}
	open := func() (*durable.Store, *catalogue.Catalogue) {
		dir := t.TempDir()
		tables.SQLite(t, dir)
		store, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		c := catalogue.New(store, slog.New(slog.DiscardHandler))
		require.NoError(t, c.Refresh(t.Context()))
		return store, c
	}
	w.first, w.cats[0] = open()
	w.two, w.cats[1] = open()
	w.api = &answering{store: w.two}
	w.router = New(Options{Names: []string{"two", "away"}, Store: w.first, Catalogue: w.cats[0],
		NowMs: func() int64 { return w.nowMs }, Refuse: problem.Write,
		KeyIn: func(h *fasthttp.RequestHeader) string { return string(h.Peek("Key")) }, Log: slog.New(slog.DiscardHandler)})
	w.router.Join("two", &Part{Store: w.two, Catalogue: w.cats[1], API: w.api, Announce: func() {}})
	return w
}

func (w *world) place(id string, store ...string) (Placed, error) {
	var named *string
	if len(store) > 0 {
		named = &store[0]
	}
	return w.router.Place(w.t.Context(), id, named)
}

func (w *world) make(store *durable.Store, id string) {
	_, _, err := store.PutChannel(w.t.Context(), durable.Put{ID: id, NewToken: "t"})
	require.NoError(w.t, err)
	for _, c := range w.cats {
		require.NoError(w.t, c.Refresh(w.t.Context()))
	}
}

func (w *world) held(id string) (store string, known bool) {
	p, err := w.first.PlaceOf(w.t.Context(), id)
	if !errors.Is(err, durable.ErrNotFound) {
		require.NoError(w.t, err)
	}
	return p.Store, err == nil
}

func code(err error) string {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// A place that is left over moves after a minute, and not before: its channel may be on its way.
func TestAPlaceThatIsLeftOverMovesAfterAMinute(t *testing.T) {
	w := newWorld(t)
	to, err := w.place("c", "two")
	require.NoError(t, err)
	require.NotNil(t, to.API)
	_, err = w.place("c")
	require.Equal(t, "unavailable", code(err), "another request may be creating it")
	w.nowMs += creating.Milliseconds()
	to, err = w.place("c")
	require.NoError(t, err)
	require.Nil(t, to.API)
	store, known := w.held("c")
	require.True(t, known)
	require.Empty(t, store)
}

// A place is taken back where the request is refused, and stays where its outcome is not known.
func TestAPlaceIsTakenBackWhereTheRequestIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, end := range []struct {
		err  error
		kept bool
	}{{nil, true}, {errors.New("no answer"), true}, {problem.New(400, "invalid_policy", "x"), false},
		{problem.New(503, "outcome_unknown", "x"), true}, {errAway("two"), false}} {
		to, err := w.place("c", "two")
		require.NoError(t, err)
		to.Done(t.Context(), end.err)
		_, known := w.held("c")
		require.Equal(t, end.kept, known, end.err)
		w.router.Deleted(t.Context(), "c")
	}
	_, err := w.place("c", "away")
	require.Equal(t, "unavailable", code(err))
	_, known := w.held("c")
	require.False(t, known, "nothing is placed in a store that is away")
	_, err = w.place("c", "other")
	require.Equal(t, "invalid_store", code(err))
}

// A channel stays where it is, whatever later requests name.
func TestAChannelStaysWhereItIs(t *testing.T) {
	w := newWorld(t)
	w.make(w.first, "one")
	to, err := w.place("two", "two")
	require.NoError(t, err)
	w.make(w.two, "two")
	to.Done(t.Context(), nil)
	_, err = w.place("one", "two")
	require.Equal(t, "store_fixed", code(err))
	_, err = w.place("two", "")
	require.Equal(t, "store_fixed", code(err))
	to, err = w.place("two")
	require.NoError(t, err)
	require.NotNil(t, to.API, "a PUT without a store changes it there")
	to.Done(t.Context(), problem.New(400, "invalid_policy", "x"))
	_, known := w.held("two")
	require.True(t, known, "the refusal of a change takes nothing back")
}

// Which requests go to another store, and which never do.
func TestRequestsGoToTheStoreOfTheirChannel(t *testing.T) {
	w := newWorld(t)
	w.make(w.first, "one")
	w.make(w.two, "c")
	for _, ask := range []struct {
		method, uri string
		served      bool
		sees        string
	}{
		{"POST", "/channel/c/broadcast", true, "/channel/c/broadcast"},
		{"POST", "/channel/%63/broadcast", true, "/channel/%63/broadcast"},
		{"GET", "/channel/one", false, ""},
		{"GET", "/channel/none", false, ""},
		{"GET", "/channel/~alerts", false, ""},
		{"GET", "/ui/channel/c", true, "/ui/channel/c"},
		{"GET", "/ui/dlq?channel=c", true, "/ui/dlq?channel=c"},
		{"POST", "/sqs/c/k", true, "/sqs/c/k"},
		{"GET", "/consumers?size=2&store=two", true, "/consumers?size=2"},
		{"GET", "/consumers?store=", false, ""},
		{"GET", "/producers?store=two", false, ""},
		{"PUT", "/producer/p?store=two", false, ""},
		{"POST", "/producer/p/dlq?store=two", true, "/producer/p/dlq"},
		{"POST", "/group/g/pause?store=two", false, ""},
		{"GET", "/", false, ""},
	} {
		w.api.seen = nil
		var rc fasthttp.RequestCtx
		rc.Request.Header.SetMethod(ask.method)
		rc.Request.SetRequestURI(ask.uri)
		require.Equal(t, ask.served, w.router.Serve(&rc), ask.uri)
		if ask.served {
			require.Equal(t, []string{ask.sees}, w.api.seen)
		}
	}
	var rc fasthttp.RequestCtx
	rc.Request.SetRequestURI("/consumers?store=away")
	require.True(t, w.router.Serve(&rc))
	require.Equal(t, 503, rc.Response.StatusCode())
	require.Equal(t, []string{"away"}, w.router.Away())
}

// An access key leads to the store of its channel, which is remembered. A key that may be of a store that is away is
// not called unknown.
func TestAnAccessKeyLeadsToTheStoreOfItsChannel(t *testing.T) {
	w := newWorld(t)
	for id, store := range map[string]*durable.Store{"one": w.first, "two": w.two} {
		w.make(store, id)
		_, err := store.CreateSQSKey(t.Context(), id, durable.SQSKey{ID: "key of " + id, Secret: "s"})
		require.NoError(t, err)
	}
	ask := func(method, uri, key string) (served bool, status int) {
		var rc fasthttp.RequestCtx
		rc.Request.Header.SetMethod(method)
		rc.Request.SetRequestURI(uri)
		rc.Request.Header.Set("Key", key)
		served = w.router.Serve(&rc)
		return served, rc.Response.StatusCode()
	}
	for range 2 {
		served, _ := ask("POST", "/", "key of one")
		require.False(t, served)
		served, status := ask("POST", "/", "key of two")
		require.True(t, served)
		require.Equal(t, 204, status)
	}
	require.Len(t, w.api.seen, 2)
	require.Equal(t, map[string]string{"key of one": "", "key of two": "two"}, w.router.keys.stores)
	served, status := ask("POST", "/", "key of nobody")
	require.True(t, served)
	require.Equal(t, 503, status, "it may be of the store that is away")
	for _, other := range [][2]string{{"POST", "/tokens"}, {"GET", "/"}} {
		served, _ = ask(other[0], other[1], "key of two")
		require.False(t, served, other)
	}
	w.router.Join("away", &Part{Store: w.two, Catalogue: w.cats[1], API: w.api, Announce: func() {}})
	served, _ = ask("POST", "/", "key of nobody")
	require.False(t, served, "the first store says that there is no such key")
}

// A store that hangs keeps no SQS client from another one, whichever of them it is.
func TestAStoreThatHangsKeepsNoAccessKeyFromAnother(t *testing.T) {
	for _, hangs := range []string{"", "away"} {
		w := newWorld(t)
		w.make(w.two, "two")
		_, err := w.two.CreateSQSKey(t.Context(), "two", durable.SQSKey{ID: "key of two", Secret: "s"})
		require.NoError(t, err)
		if hangs == "" {
			w.router.o.Store = hanging{w.first}
		} else {
			w.router.Join(hangs, &Part{Store: hanging{w.two}, Catalogue: w.cats[1], API: w.api, Announce: func() {}})
		}
		var rc fasthttp.RequestCtx
		rc.Request.Header.SetMethod("POST")
		rc.Request.Header.Set("Key", "key of two")
		require.True(t, w.router.Serve(&rc))
		require.Equal(t, 204, rc.Response.StatusCode())
	}
}

// A hanging store does not answer about keys.
type hanging struct{ *durable.Store }

func (hanging) SQSKey(ctx context.Context, _ string) (durable.SQSKey, error) {
	<-ctx.Done()
	return durable.SQSKey{}, ctx.Err()
}

// A change of the first store is in the others when Follow returns, and a version that is older changes nothing.
func TestCopiesFollowTheFirstStore(t *testing.T) {
	w := newWorld(t)
	put := func(id, token string) {
		_, _, err := w.first.PutProducer(t.Context(), durable.Put{ID: id, NewToken: token, Token: &token})
		require.NoError(t, err)
		require.NoError(t, w.cats[0].Refresh(t.Context()))
		w.router.Follow(t.Context())
	}
	put("p", "one")
	require.Equal(t, "one", w.cats[1].Producer("p").Token)
	require.Equal(t, w.cats[0].Producer("p").No, w.cats[1].Producer("p").No)
	put("p", "two")
	require.Equal(t, "two", w.cats[1].Producer("p").Token)
	_, err := w.first.DeleteProducer(t.Context(), durable.Put{ID: "p"})
	require.NoError(t, err)
	put("p", "again")
	require.Equal(t, "again", w.cats[1].Producer("p").Token)
	require.Equal(t, w.cats[0].Producer("p").No, w.cats[1].Producer("p").No)
	before := w.cats[1].Version()
	w.router.Follow(t.Context())
	require.NoError(t, w.cats[1].Refresh(t.Context()))
	require.Equal(t, before, w.cats[1].Version(), "nothing is written for nothing")
}
