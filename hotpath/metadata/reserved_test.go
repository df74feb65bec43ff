package metadata

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

func TestANameThatAServerMayTakeForAReservedOneIsReserved(t *testing.T) {
	for _, name := range []string{
		"X-Broker-Consumer-Token", "X_Broker_Consumer_Token", "x_broker-attempt", "X.Broker.Message.ID", "X-Broker-",
		"X_Broker_Anything",
		"Content-Length", "Content_Length", "content_type", "Content~Length", "Transfer_Encoding", "Host", "HOST",
		"Proxy", "PROXY", "Proxy-Authorization", "Proxy_Anything", "X-Forwarded-For", "X_Forwarded_Proto", "X-Forwarded",
		"Forwarded", "X-Real-IP", "x_real_ip",
		"X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL",
		"X_Rewrite_URL",
		"Via", "Max-Forwards", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "Remote_User", "X-Remote-User",
		"SSL_Client_Verify",
		"Set-Cookie", "Cookie", "Authorization", "WWW-Authenticate", "Sec-Fetch-Site", "Origin", "Range", "If-None-Match",
		"If_Match", "Content-Range",
		"Accept", "Accept_Encoding", "webhook-signature", "Webhook_ID", "X-Request-ID", "X_Request_Id", "User_Agent",
		"X-Acme-Token", "x_acme_token", "X.Acme_Token",
	} {
		require.True(t, Reserved(name, "X-Acme-Token"), name)
	}
	for _, name := range []string{
		"X-Tenant", "X_Tenant", "traceparent", "tracestate", "baggage", "X-Brokerage", "X-Brok", "XBroker-Token",
		"X--Broker-Token", "Proxied", "Hostname",
		"X-Forward", "Vial", "Content-MD5", "Content-Digest", "Content-Language", "X-Original-Message", "X-GitHub-Event",
		"X-Hub-Signature-256",
		"Acceptance", "Ranges", "Iffy", "Webhook", "Idempotency-Key", "X-Acme-Tokens", "Acme-Token", strings.Repeat("x", 256),
	} {
		require.False(t, Reserved(name, "X-Acme-Token"), name)
	}
}

func TestANameIsCheckedWithoutMemory(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() { Reserved("X-Some-Tenant-Of-Ours", "X-Broker-Consumer-Token") }))
}

func TestOfTwoNamesThatAServerMayTakeForTheSameNoneIsChosen(t *testing.T) {
	present := func(string) ([]byte, bool) { return []byte("v"), true }
	for _, list := range []string{"X-A-B,X-A_B", "x_a_b, y, X-A-B", "X.A,X-A,X-A"} {
		_, err := Collect([]byte(list), "X-Key", present)
		require.Equal(t, 400, problem.From(err).Status, list)
		require.Equal(t, "invalid_metadata_headers", problem.From(err).Code)
	}
	got, err := Collect([]byte("X-A-B,x-a-b,X-A-B"), "X-Key", present)
	require.NoError(t, err)
	require.Equal(t, "X-A-B:v\n", string(got), "one name however often and in which case")
	got, err = Collect([]byte("X-A-B,X-A_B"), "X-Key", func(name string) ([]byte, bool) {
		return []byte("v"), name == "X-A_B"
	})
	require.NoError(t, err)
	require.Equal(t, "X-A_B:v\n", string(got), "the other one is not there")
	_, err = Merge([]byte("X-A-B:1\n"), map[string]string{"X-A_B": "2"}, "X-Key")
	require.Equal(t, 400, problem.From(err).Status, "a line does not replace what only looks alike")
}

func TestWhatWasStoredBeforeItWasReservedIsNotSent(t *testing.T) {
	var h fasthttp.RequestHeader
	Set(&h, []byte("X-Forwarded-For:1.2.3.4\nX_Acme_Token:forged\nX-B:2\nX-A:1\n"), "X-Acme-Token")
	require.Equal(t, "1", string(h.Peek("X-A")))
	require.Empty(t, h.Peek("X-Forwarded-For"))
	require.Empty(t, h.Peek("X_Acme_Token"))
	require.Equal(t, "X-A,X-B", string(h.Peek("X-Broker-Metadata-Headers")))

	for _, stored := range []string{"", "X-Forwarded-For:1.2.3.4\n"} {
		h.Reset()
		Set(&h, []byte(stored), "X-Acme-Token")
		require.Zero(t, h.Len(), stored)
	}
}

func TestAPIPageListsTheReservedNames(t *testing.T) {
	var want []string
	for _, r := range reservedGroups {
		want = append(want, "| `"+strings.ReplaceAll(r.names, " ", "` `")+"` | "+r.why+" |")
	}
	page, err := os.ReadFile("../../docs/headers.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "<!-- reserved -->\n")
	table, _, ok := strings.Cut(rest, "<!-- /reserved -->")
	require.True(t, ok, "the page has the table")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Equal(t, strings.Join(want, "\n"), strings.Join(lines[2:], "\n"))
}
