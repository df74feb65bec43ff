package request

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func TestARequestHasOneContextWithItsID(t *testing.T) {
	for _, id := range []string{"", "k2v5u8h0m3p6s9b1d4g7", "7c9e6679-7425-40de-944b-e07fc1f90ae7",
		strings.Repeat("x", 128)} {
		var rc fasthttp.RequestCtx
		rc.Response.Header.Set(HeaderID, id)
		ctx := Of(&rc)
		require.Same(t, ctx, Of(&rc))
		within, cancel := context.WithTimeout(ctx, time.Minute)
		rc.Response.Reset() // the server uses it again
		require.Equal(t, id, ID(within))
		cancel()
		require.ErrorIs(t, within.Err(), context.Canceled)
		require.NoError(t, ctx.Err(), "nothing ends the context of a request")
	}
	require.Empty(t, ID(context.Background()))
}

// What works for a request after it has been answered keeps the context, and another request does not
// change it.
func TestTheContextOfARequestOutlivesItsRequestCtx(t *testing.T) {
	var rc fasthttp.RequestCtx
	rc.Response.Header.Set(HeaderID, "first")
	first := Of(&rc)
	rc.Request.Reset()
	rc.Response.Reset()
	rc.ResetUserValues()
	rc.Response.Header.Set(HeaderID, "second")
	require.Equal(t, "second", Of(&rc).ID())
	require.Equal(t, "first", first.ID())
}

// A context that is lent is another request's later; what is kept of it is not.
func TestAContextThatIsLentAllocatesNothingAndIsKeptAsACopy(t *testing.T) {
	var rc fasthttp.RequestCtx
	rc.Response.Header.Set(HeaderID, "first")
	lent := Lend(&rc)
	kept := Keep(lent)
	rc.Response.Header.Set(HeaderID, "second")
	lent.begin(&rc)
	require.Equal(t, "second", ID(lent))
	require.Equal(t, "first", ID(kept))
	lent.Return()
	within, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.Equal(t, within, Keep(within), "another context is kept as it is")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ctx := Lend(&rc)
		if context.Context(ctx).Done() != nil {
			t.Fatal("it ends")
		}
		ctx.Return()
	}))
}

func TestTheContextOfARequestIsOneAllocation(t *testing.T) {
	var rc fasthttp.RequestCtx
	rc.Response.Header.Set(HeaderID, "7c9e6679-7425-40de-944b-e07fc1f90ae7")
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		rc.ResetUserValues()
		if ctx := context.Context(Of(&rc)); ctx.Done() != nil {
			t.Fatal("it ends")
		}
	}), 1.0)
}

type joint struct {
	context.Context
	members []context.Context
}

func (j joint) Value(key any) any {
	if key == (JointKey{}) {
		return j
	}
	return j.Context.Value(key)
}

func (j joint) Each(f func(context.Context) bool) {
	for _, m := range j.members {
		if !f(m) {
			return
		}
	}
}

func TestWorkForSeveralRequestsLeadsToEachOfThem(t *testing.T) {
	var members []context.Context
	for _, id := range []string{"a", "b", "c"} {
		var rc fasthttp.RequestCtx
		rc.Response.Header.Set(HeaderID, id)
		members = append(members, Of(&rc))
	}
	ctx, cancel := context.WithTimeout(joint{t.Context(), members}, time.Minute)
	defer cancel()
	var got []string
	Each(ctx, func(m context.Context) bool {
		got = append(got, ID(m))
		return len(got) < 2
	})
	require.Equal(t, []string{"a", "b"}, got)
	require.Empty(t, ID(ctx))
	got = nil
	Each(members[2], func(m context.Context) bool {
		got = append(got, ID(m))
		return true
	})
	require.Equal(t, []string{"c"}, got)
}
