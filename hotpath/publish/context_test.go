package publish

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// namingStore keeps for which requests it was asked.
type namingStore struct {
	noStore
	mu  sync.Mutex
	ids []string
}

func (s *namingStore) Insert(ctx context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	request.Each(ctx, func(member context.Context) bool {
		s.ids = append(s.ids, request.ID(member))
		return true
	})
	return make([]error, len(batch))
}

// The ID of a request goes with its messages to the store, one by one and in a batch.
func TestTheStoreKnowsForWhichRequestItStores(t *testing.T) {
	store := &namingStore{}
	p := publisherOn(t, store)
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	begin := func(id, body string) *fasthttp.RequestCtx {
		rc := &fasthttp.RequestCtx{}
		rc.Init2(server, nil, false)
		rc.Request.Header.SetMethod("POST")
		for _, h := range admitted {
			rc.Request.Header.Set(h[0], h[1])
		}
		rc.Response.Header.Set(request.HeaderID, id)
		rc.Request.SetBodyString(body)
		rc.SetUserValue("channel", "c")
		return rc
	}
	one := begin("one", "x")
	p.Broadcast(one, "c")
	require.Equal(t, 201, one.Response.StatusCode())
	many := begin("many", "")
	lines := strings.Repeat(`{"Payload":"p"}`+"\n", 3)
	many.Request.Header.SetContentType("application/x-ndjson")
	many.Request.SetBodyStream(strings.NewReader(lines), len(lines))
	p.BroadcastBatch(many)
	require.Equal(t, 200, many.Response.StatusCode())
	require.NoError(t, many.Response.BodyWriteTo(io.Discard))
	require.Equal(t, []string{"one", "many"}, store.ids)
}
