package reaper

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestTheAdminTokenFollowsNoRedirect(t *testing.T) {
	var leaked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, status)
		}))
		t.Cleanup(balancer.Close)
		r := NewRetrigger(balancer.URL, "s3cret", auditlog.Printer{})
		t.Cleanup(r.Close)
		err := r.Message(t.Context(), "c", ident.AtMillis(1))
		require.ErrorContains(t, err, "status 30", "a redirect is a failure")
		require.NotContains(t, err.Error(), "s3cret", auditlog.Printer{})
	}
	require.Zero(t, leaked.Load(), "another host got a request")
}

func TestTheAdminTokenGoesThroughNoProxyOfTheEnvironment(t *testing.T) {
	// The standard library reads the environment once in a process, and never uses a proxy
	// for loopback. The test therefore inspects the setting of the transport.
	r := NewRetrigger("http://balancer.example", "s3cret", auditlog.Printer{})
	t.Cleanup(r.Close)
	transport, ok := r.client.Transport.(*http.Transport)
	require.True(t, ok, "the default transport uses HTTP_PROXY")
	require.Nil(t, transport.Proxy)
}
