package alerts

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/mail"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// posted is the end of a request to a URL as a delivery gets it.
func posted(t *testing.T, o egress.Options, to string) egress.Result {
	t.Helper()
	client := egress.NewClient(o)
	defer client.Close()
	target, err := client.Target(egress.Configured, to, "")
	require.NoError(t, err)
	return (&poster{target, hostName(to)}).Post(&fasthttp.Request{}, 2*time.Second)
}

// Nothing that is said of a request shows the URL: neither its host, path and query, nor what the answer quotes.
func TestNoEndOfARequestShowsTheURL(t *testing.T) {
	status := http.StatusOK
	var broker string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		broker = r.Header.Get(egress.MadeByBroker)
		w.Header().Set("Location", "/else"+r.URL.String())
		w.WriteHeader(status)
		_, _ = w.Write([]byte("cannot POST " + r.URL.String()))
	}))
	defer server.Close()
	private, err := egress.ParsePolicy("private", nil)
	require.NoError(t, err)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	at := func(addr string) string {
		return "http://Hook-s3cret.example:" + addr[strings.LastIndex(addr, ":")+1:] + "/s3cret?key=s3cret"
	}
	found := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	missing := func(_ context.Context, host string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	public, err := egress.ParsePolicy("public", nil)
	require.NoError(t, err)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		o    egress.Options
		at   string
		code int
		says string
	}{
		{"taken", egress.Options{Policy: private, Lookup: found}, u.Host, 200, ""},
		{"redirect", egress.Options{Policy: private, Lookup: found}, u.Host, 302, ""},
		{"failure", egress.Options{Policy: private, Lookup: found}, u.Host, 500, ""},
		{"refused", egress.Options{Policy: private, Lookup: found}, closed.Addr().String(), 0,
			"connection refused by 127.0.0.1:"},
		{"no name", egress.Options{Policy: private, Lookup: missing}, u.Host, 0,
			"the host name of BROKER_ALERT_WEBHOOK_URL does not exist"},
		{"forbidden", egress.Options{Policy: public, Lookup: found}, u.Host, 0, "not allowed"},
	} {
		status = tc.code
		res := posted(t, tc.o, at(tc.at))
		require.Equal(t, tc.code, res.Status, tc.name)
		require.Empty(t, res.Answer, tc.name)
		require.Nil(t, res.Response, tc.name)
		require.Contains(t, res.Words, tc.says, tc.name)
		require.Equal(t, tc.says == "", res.Words == "", tc.name)
		require.NotContains(t, res.Words, "s3cret", tc.name)
	}
	require.NotEmpty(t, broker, "other brokers know the request")
}

// A broker without the settings fails an attempt, and names the setting.
func TestABrokerWithoutTheSettingNamesIt(t *testing.T) {
	public, err := egress.ParsePolicy("public", nil)
	require.NoError(t, err)
	client := egress.NewClient(egress.Options{Policy: public})
	defer client.Close()
	server, wrong := mail.NewServer("smtp://mail.example.com", "broker@example.com", nil)
	require.Empty(t, wrong)
	without, with := mail.New(mail.Options{Missing: "BROKER_ALERT_SMTP_URL"}), mail.New(mail.Options{Server: server,
		Domains: []string{"example.org"}})
	for _, tc := range []struct {
		row      push.Sender
		callback string
		says     string
	}{
		{Posts(client, ""), "alert-webhook:" + WebhookSetting, "this broker has no BROKER_ALERT_WEBHOOK_URL"},
		{Posts(client, "http://169.254.169.254/s3cret"), "alert-webhook:" + WebhookSetting,
			"this broker may not post to the URL in BROKER_ALERT_WEBHOOK_URL"},
		{Posts(client, "https://example.com/"), "alert-webhook:" + WebhookSetting, ""},
		{Mails(without, []string{"a@example.com"}), "alert-mail:" + MailSetting, "this broker has no BROKER_ALERT_SMTP_URL"},
		{Mails(with, nil), "alert-mail:" + MailSetting, "this broker has no BROKER_ALERT_TO"},
		{Mails(with, []string{"a@example.com"}), "alert-mail:" + MailSetting, ""},
	} {
		senders := push.NewSenders(tc.row)
		target, err := senders.Target(egress.ToConsumers, tc.callback, "")
		if tc.says == "" {
			require.NoError(t, err)
			require.NotNil(t, target)
		} else {
			require.EqualError(t, err, tc.says)
		}
		require.Error(t, senders.Check(tc.callback), "no client has the scheme")
		require.Equal(t, policy.Kind(0), senders.Kind(tc.callback))
	}
}
