package push

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

func headersOf(p *policy.Policy, id, body string, at time.Time) http.Header {
	var h fasthttp.RequestHeader
	p.Prove(h.Set, id, []byte(body), at)
	out := http.Header{}
	for name, value := range h.All() {
		out.Add(string(name), string(value))
	}
	return out
}

// The vector is that of the specification of Standard Webhooks.
func TestSignatureOfTheSpecification(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	h := headersOf(&policy.Policy{SigningSecret: secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`,
		time.Unix(1614265330, 0))
	require.Equal(t, "msg_p5jXN8AQM9LWM0D4loKWxJek", h.Get("Webhook-Id"))
	require.Equal(t, "1614265330", h.Get("Webhook-Timestamp"))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", h.Get("Webhook-Signature"))
}

// The receiver's library accepts a signature of either secret during the overlap, and of the
// new one alone after it.
func TestTheReferenceLibraryVerifiesDuringTheOverlap(t *testing.T) {
	var p policy.Policy
	require.NoError(t, policy.Set(&p, "signingSecret", "generate"))
	require.NoError(t, policy.Set(&p, "signingSecretPrevious", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	now := time.Now()
	verify := func(secret policy.Secret, h http.Header, body string) error {
		w, err := standardwebhooks.NewWebhook(string(secret))
		require.NoError(t, err)
		return w.Verify([]byte(body), h)
	}
	p.SigningPreviousUntil = now.Add(time.Hour).UnixMilli()
	h := headersOf(&p, "a.b", "body", now)
	require.NoError(t, verify(p.SigningSecret, h, "body"))
	require.NoError(t, verify(p.SigningSecretPrevious, h, "body"))
	require.Error(t, verify(p.SigningSecret, h, "bodY"))

	p.SigningPreviousUntil = now.UnixMilli()
	h = headersOf(&p, "a.b", "body", now)
	require.NoError(t, verify(p.SigningSecret, h, "body"))
	require.Error(t, verify(p.SigningSecretPrevious, h, "body"))
}

func TestHeadersAndCredentialsOfThePolicyAreSent(t *testing.T) {
	var p policy.Policy
	require.NoError(t, policy.Set(&p, "headers", "X-Tenant: a b\nX-Empty:"))
	require.NoError(t, policy.Set(&p, "authorization", "basic user:pass word"))
	h := headersOf(&p, "m", "", time.Now())
	require.Equal(t, "a b", h.Get("X-Tenant"))
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass word")), h.Get("Authorization"))
	require.Empty(t, h.Get("Webhook-Signature"))
	require.NoError(t, policy.Set(&p, "authorization", "bearer t0ken"))
	require.Equal(t, "Bearer t0ken", headersOf(&p, "m", "", time.Now()).Get("Authorization"))
}
