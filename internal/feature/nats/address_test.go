package nats

import (
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

func TestACallbackNamesAServerAndASubject(t *testing.T) {
	check := New(Options{}).Row().Check
	for _, good := range []string{"nats://nats.example.com/orders", "nats://NATS.example.com:4223/orders.new",
		"tls://nats.example.com/a-b_c.D9", "nats://[::1]:4222/a", "NATS://127.0.0.1/a", "nats://h/a%2Db.$c"} {
		require.NoError(t, check(good), good)
	}
	for bad, words := range map[string]string{
		"nats:orders": "has the form", "nats://": "has the form", "nats:///orders": "has the form",
		"nats://user:secret@h/a": "the field authorization", "nats://token@h/a": "the field authorization",
		"nats://h/a?b": "ends with its subject", "nats://h/a?": "ends with its subject", "nats://h/a#b": "ends with",
		"nats://h:0/a": "1 to 65535", "nats://h:65536/a": "1 to 65535", "nats://h:/a": "1 to 65535",
		"nats://h": "The subject", "nats://h/": "The subject", "nats://h/a/b": "The subject", "nats://h/a.*": "The subject",
		"nats://h/a.>": "The subject", "nats://h/.a": "The subject", "nats://h/a.": "The subject",
		"nats://h/a..b": "The subject", "nats://h/a%20b": "The subject", "nats://h/a%0d%0aPUB": "The subject",
		"nats://h/%C3%A4": "The subject", "nats://h/" + strings.Repeat("a", mostSubject+1): "The subject",
		"nats://h/$JS.API.STREAM.DELETE.X": "must not begin with $", "nats://h/%24SYS.REQ": "must not begin with $",
		"nats://h/_INBOX.a.1": "must not begin with $",
	} {
		err := check(bad)
		var p *problem.Problem
		require.ErrorAs(t, err, &p, bad)
		require.Equal(t, []any{400, "invalid_callback"}, []any{p.Status, p.Code})
		require.Contains(t, p.Detail, words, bad)
		require.NotContains(t, p.Detail, "secret")
	}
	for _, forbidden := range []string{"nats://169.254.169.254/a", "tls://metadata.google.internal/a",
		"nats://2852039166/a"} {
		require.ErrorIs(t, check(forbidden), egress.ErrForbidden, forbidden)
	}
	require.Error(t, check("nats://h_.exa mple/a"))
}

func FuzzACallback(f *testing.F) {
	f.Add("nats://nats.example.com:4222/orders.new")
	f.Add("tls://[::1]/a%2eb")
	f.Fuzz(func(t *testing.T, rawURL string) {
		a, err := parse(rawURL, egress.Policy{})
		if err != nil {
			return
		}
		require.NotEmpty(t, a.host)
		require.Empty(t, strings.Trim(a.port, "0123456789"))
		require.False(t, strings.ContainsAny(a.subject, " \t\r\n*>/"), "%q", a.subject)
		require.False(t, strings.HasPrefix(a.subject, "$"))
	})
}

func TestCredentialsAreThoseOfThePolicy(t *testing.T) {
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	fits := func(authorization string) (login, error) {
		var p policy.Policy
		require.NoError(t, policy.Set(&p, "authorization", authorization))
		require.Equal(t, New(Options{}).Row().Fits(&p) == nil, func() bool {
			_, err := loginOf(p.Authorization)
			return err == nil
		}())
		return loginOf(p.Authorization)
	}
	for authorization, want := range map[string]login{
		"basic ann:a b:c":           {User: "ann", Password: "a b:c"},
		"Basic YW5uOnNlY3JldA==":    {User: "ann", Password: "secret"},
		"bearer t.o-k":              {Token: "t.o-k"},
		"nkey " + string(seed):      {Key: public, seed: string(seed)},
		"jwt a.b.c " + string(seed): {JWT: "a.b.c", seed: string(seed)},
	} {
		l, err := fits(authorization)
		require.NoError(t, err)
		require.Equal(t, want, l)
	}
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	other, err := account.Seed()
	require.NoError(t, err)
	for _, bad := range []string{"oauth2 https://h/token id secret", "Splunk secret", "nkey secret", "jwt secret",
		"jwt a.b.c secret", "nkey " + string(other)} {
		_, err := fits(bad)
		require.ErrorContains(t, err, "authorization")
		require.NotContains(t, err.Error(), "secret")
	}
	l, err := fits("nkey " + string(seed))
	require.NoError(t, err)
	require.NoError(t, l.sign("nonce"))
	require.NotEmpty(t, l.Signed)
}
