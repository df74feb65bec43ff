package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A tarpit answers /quick at once; other requests hang until they end.
func tarpit(t *testing.T) (url string, hanging *atomic.Int64) {
	hanging = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/quick" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		hanging.Add(1)
		defer hanging.Add(-1)
		<-q.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL, hanging
}

func callAs(ctx context.Context, c *Client, who share.Key, url string) error {
	r, err := http.NewRequestWithContext(For(ctx, who), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := c.Web(Configured).Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return err
}

func TestAnAccountTakesAPartOfAHostThatOthersCallToo(t *testing.T) {
	url, hanging := tarpit(t)
	c := client(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { _ = callAs(ctx, c, share.Consumer(1), url+"/hangs") })
	}
	require.Eventually(t, func() bool { return hanging.Load() == callsPerHost/2 }, time.Minute, time.Millisecond)
	for range 50 {
		require.NoError(t, callAs(t.Context(), c, share.Consumer(2), url+"/quick"))
	}
	require.EqualValues(t, callsPerHost/2, hanging.Load(), "the others still hang, and no more than that")
	require.EqualValues(t, callsPerHost/2, c.calls.all.Taken())
	stop()
	all.Wait()
	require.Zero(t, c.calls.all.Taken())
	require.Empty(t, c.calls.hosts)
}

func TestWhereAllPlacesHangTheSlowestCallIsEndedForAnotherAccount(t *testing.T) {
	url, hanging := tarpit(t)
	c := client(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for no := range uint32(callsPerHost) {
		all.Go(func() { _ = callAs(ctx, c, share.Producer(no), url+"/hangs") })
	}
	require.Eventually(t, func() bool { return hanging.Load() == callsPerHost }, time.Minute, time.Millisecond)
	require.NoError(t, callAs(t.Context(), c, share.Producer(99), url+"/quick"))
	require.Eventually(t, func() bool { return hanging.Load() == callsPerHost-1 }, time.Minute, time.Millisecond,
		"one was ended")
	stop()
	all.Wait()
}

func TestAHostThatHangsStopsNoOther(t *testing.T) {
	slow, hanging := tarpit(t)
	quick, _ := tarpit(t)
	c := client(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for no := range uint32(100) {
		all.Go(func() { _ = callAs(ctx, c, share.Consumer(no), slow+"/hangs") })
	}
	require.Eventually(t, func() bool { return hanging.Load() == callsPerHost }, time.Minute, time.Millisecond)
	for range 50 {
		require.NoError(t, callAs(t.Context(), c, share.Consumer(7), strings.Replace(quick, "127.0.0.1", "localhost",
			1)+"/quick"))
	}
	stop()
	all.Wait()
}

func TestABodyThatIsNotClosedGivesItsPlaceBackWithItsContext(t *testing.T) {
	url, _ := tarpit(t)
	c := client(t)
	ctx, stop := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/quick", nil)
	require.NoError(t, err)
	answer, err := c.Web(Configured).Do(r)
	require.NoError(t, err)
	require.EqualValues(t, 1, c.calls.all.Taken())
	stop()
	require.Eventually(t, func() bool { return c.calls.all.Taken() == 0 }, time.Minute, time.Millisecond)
	_ = answer.Body.Close()
	require.ErrorIs(t, callAs(ctx, c, share.Consumer(1), url), context.Canceled)
}
