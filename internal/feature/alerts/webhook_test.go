package alerts

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

func TestTheWebhookIsSignedAndFollowsNothing(t *testing.T) {
	const secret = policy.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	verifier, err := standardwebhooks.NewWebhook(string(secret))
	require.NoError(t, err)
	answer, hits := http.StatusNoContent, 0
	var verified error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		body, _ := io.ReadAll(r.Body)
		verified = verifier.Verify(body, r.Header)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(answer)
	}))
	defer server.Close()
	post := func(p string, secret policy.Secret) error {
		rules, err := egress.ParsePolicy(p, nil)
		require.NoError(t, err)
		client := egress.NewClient(egress.Options{Policy: rules})
		defer client.Close()
		w := &Webhook{URL: server.URL + "/?key=hunter2", Secret: secret, Client: client.Web(egress.Configured), Agent: "a"}
		return w.Post(context.Background(), "alert-1", []byte(`{"a":1}`))
	}
	require.NoError(t, post("private", secret))
	require.NoError(t, verified)
	require.NoError(t, post("private", ""))
	require.Error(t, verified, "it is not signed")
	for _, answer = range []int{302, 307, 410, 500} {
		before := hits
		require.ErrorContains(t, post("private", secret), "answered")
		require.Equal(t, before+1, hits)
	}
	before := hits
	err = post("public", secret)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	require.Equal(t, before, hits, "the address is not allowed")
}
