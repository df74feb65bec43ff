package stores

import (
	"context"
	"errors"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A request of an SQS client names its queue in the body, which is read where it is answered. Its signature names an
// access key of the channel, so it is led by that.

// mostKeys bounds the keys whose stores are remembered, mostLookUps the questions to the stores at once: anybody may
// send keys that are none.
const mostKeys, mostLookUps = 10_000, 8

// keys remember in which store an access key is. It never moves, and the store itself says when it has ended.
type keys struct {
	lookUps *share.Bound
	mu      sync.Mutex
	stores  map[string]string // by key
}

func newKeys() keys {
	return keys{lookUps: share.New(share.Options{Name: "sqs_keys", Most: mostLookUps}),
		stores: map[string]string{}}
}

func (k *keys) known(id string) (store string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	store, ok = k.stores[id]
	return store, ok
}

func (k *keys) remember(id, store string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.stores) >= mostKeys {
		clear(k.stores)
	}
	k.stores[id] = store
}

// serveKey answers a request that is signed with an access key of a channel of another store.
func (r *Router) serveKey(rc *fasthttp.RequestCtx) bool {
	if r.o.KeyIn == nil {
		return false
	}
	id := r.o.KeyIn(&rc.Request.Header)
	if id == "" {
		return false
	}
	name, err := r.storeOfKey(rc, id)
	switch m := r.member(name); {
	case err != nil:
		r.o.Refuse(rc, err)
	case m == nil:
		return false // the first one has it, or says that there is no such key
	default:
		m.part.Load().API.Serve(rc)
	}
	return true
}

// storeOfKey returns the store that has an access key; "": the first one, or none of them.
func (r *Router) storeOfKey(rc *fasthttp.RequestCtx, id string) (string, error) {
	if name, ok := r.keys.known(id); ok {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rc), lookWithin)
	defer cancel()
	client := answer.KeyOf(rc)
	if r.keys.lookUps.Wait(ctx, client, 1) != nil {
		return "", problem.ErrOverloaded
	}
	defer r.keys.lookUps.Give(client, 1)
	answers := make(chan keyAnswer, 1+len(r.members))
	ask := func(name string, of interface {
		SQSKey(ctx context.Context, id string) (durable.SQSKey, error)
	}) {
		_, err := of.SQSKey(ctx, id)
		answers <- keyAnswer{name, err}
	}
	go ask("", r.o.Store)
	for _, m := range r.members { // at once: one that is away keeps nobody from another one
		if p := m.part.Load(); p != nil {
			go ask(m.name, p.Store)
		} else {
			answers <- keyAnswer{m.name, errAway(m.name)}
		}
	}
	away, unknown := "", false
	for range cap(answers) {
		switch a := <-answers; {
		case a.err == nil:
			r.keys.remember(id, a.store)
			return a.store, nil
		case a.store == "":
			unknown = errors.Is(a.err, durable.ErrNotFound)
		case !errors.Is(a.err, durable.ErrNotFound):
			away = a.store
		}
	}
	if away != "" && unknown {
		return "", later("The access key may be of the store " + away + ", which cannot be reached right now. Nothing was " +
			"changed; send the request again.")
	}
	return "", nil
}

// A keyAnswer is what a store says of an access key.
type keyAnswer struct {
	store string
	err   error // nil: it has the key
}
