package main

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// otherKey is another key of tokens, in base64.
var otherKey = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("ab", 16)))

// setTo is the world with further settings, for a command.
func (w *world) setTo(env ...string) *world {
	return &world{t: w.t, redis: w.redis, env: append(append([]string{}, w.env...), env...)}
}

// keeps returns which of some texts the store has: in the files of the embedded one, or in a column of a table.
func (w *world) keeps(texts ...string) (found []string) {
	w.t.Helper()
	var all bytes.Buffer
	if dir := w.setting("BROKER_MYSQL_DSN"); dir == "" {
		files, err := filepath.Glob(filepath.Join(w.setting("BROKER_DATA_DIR"), "penstock.db*"))
		require.NoError(w.t, err)
		require.NotEmpty(w.t, files)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(w.t, err)
			all.Write(b)
		}
	} else {
		db := w.openStore()
		rows, err := db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
		require.NoError(w.t, err)
		var names []string
		for rows.Next() {
			var name string
			require.NoError(w.t, rows.Scan(&name))
			names = append(names, name)
		}
		require.NoError(w.t, rows.Err())
		require.Greater(w.t, len(names), 20)
		for _, name := range names {
			rows, err := db.Query("SELECT * FROM `" + name + "`")
			require.NoError(w.t, err)
			columns, err := rows.Columns()
			require.NoError(w.t, err)
			for rows.Next() {
				values, into := make([]any, len(columns)), make([]any, len(columns))
				for i := range values {
					into[i] = &values[i]
				}
				require.NoError(w.t, rows.Scan(into...))
				for _, v := range values {
					if b, ok := v.([]byte); ok {
						all.Write(b)
					}
				}
			}
			require.NoError(w.t, rows.Err())
		}
	}
	for _, text := range texts {
		if bytes.Contains(all.Bytes(), []byte(text)) {
			found = append(found, text)
		}
	}
	return found
}

// shared are the secrets that the brokers share, as the store has them.
func (w *world) shared() (secrets []string) {
	w.t.Helper()
	rows, err := w.openStore().Query("SELECT secret FROM secrets")
	require.NoError(w.t, err)
	for rows.Next() {
		var secret []byte
		require.NoError(w.t, rows.Scan(&secret))
		secrets = append(secrets, string(secret))
	}
	require.NoError(w.t, rows.Err())
	return secrets
}

// With a key the store has no token, secret or credential as it is; deliveries, publishes and claims work as without
// one; another key refuses the start, and broker reencrypt changes the key.
func TestWhatIsSecretIsEncryptedInTheStore(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		got := make(chan http.Header, 16)
		hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
		t.Cleanup(hook.Close)
		admin := []string{"X-Broker-Admin-Token", adminToken}
		form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
		secrets := []string{"producer-token-1", "producer-token-2", "publish-secret-of-16", "channel-token-1",
			"channel-token-2", "consumer-token-1", "consumer-token-2", "credential-of-the-consumer"}
		put := func(p *process, n string) {
			for path, body := range map[string]string{"/producer/p": "token=producer-token-" + n +
				"&publishSecret=publish-secret-of-16", "/channel/c": "token=channel-token-" + n} {
				require.Less(t, p.do("PUT", path, body, form...).status, 300)
			}
			r := p.do("PUT", "/channel/c/consumer/k", "callbackUrl="+hook.URL+"&token=consumer-token-"+n+
				"&authorization=bearer+credential-of-the-consumer&signingSecret=generate", form...)
			require.Less(t, r.status, 300, r.body)
			r = p.do("PUT", "/producer/q", "token=producer-token-"+n, form...)
			require.Less(t, r.status, 300, r.body)
		}
		works := func(p *process, n string) {
			t.Helper()
			r := p.do("POST", "/channel/c/broadcast", "hello", "X-Broker-Channel-Token", "channel-token-"+n,
				"X-Broker-Producer-ID", "q", "X-Broker-Producer-Token", "producer-token-"+n)
			require.Equal(t, 201, r.status, r.body)
			h := <-got
			require.Equal(t, "consumer-token-"+n, h.Get("X-Broker-Consumer-Token"))
			require.Equal(t, "Bearer credential-of-the-consumer", h.Get("Authorization"))
			require.NotEmpty(t, h.Get("Webhook-Signature"))
			r = p.do("GET", "/channel/c/consumer/k/dlq", "", "X-Broker-Channel-Token", "channel-token-"+n,
				"X-Broker-Consumer-Token", "consumer-token-"+n)
			require.Equal(t, 200, r.status, r.body)
		}
		key := []string{"BROKER_TOKEN_KEY=" + tokenKey}
		p := w.start(key...)
		put(p, "1")
		sqs := p.do("POST", "/channel/c/sqs-key", "", admin...).json(t)["SecretAccessKey"].(string)
		works(p, "1")
		put(p, "2")
		works(p, "2")
		require.Empty(t, w.keeps(append(secrets, sqs)...))
		p.stop()
		require.Empty(t, w.keeps(append(secrets, sqs)...))

		for _, wrong := range [][]string{{}, {"BROKER_TOKEN_KEY=" + otherKey}} {
			p := w.launch(wrong...)
			<-p.done
			require.Equal(t, exitUsage, p.cmd.ProcessState.ExitCode(), p.log.String())
			require.Contains(t, p.log.String(), "cannot be decrypted")
			require.Contains(t, p.log.String(), "set BROKER_TOKEN_KEY to that key, or BROKER_TOKEN_KEY_PREVIOUS")
			code, _, said := w.setTo(wrong...).command("reencrypt")
			require.Equal(t, exitUsage, code, said)
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "journal"), 0o700))
			code, _, said = w.setTo(wrong...).command("journal", "replay", dir)
			require.Equal(t, exitUsage, code, said)
			require.Contains(t, said, "the secret of shared secret journal")
		}
		p = w.start(key...)
		works(p, "2")
		embedded := w.setting("BROKER_MYSQL_DSN") == ""
		if embedded { // its store belongs to it
			code, _, said := w.setTo(key...).command("reencrypt")
			require.Equal(t, exitStore, code)
			require.Contains(t, said, "in use by another broker")
			p.stop()
		}
		both := []string{"BROKER_TOKEN_KEY=" + otherKey, "BROKER_TOKEN_KEY_PREVIOUS=" + tokenKey}
		code, said, stderr := w.setTo(both...).command("reencrypt")
		require.Zero(t, code, stderr)
		require.Contains(t, said, "are encrypted with the key")
		code, said, _ = w.setTo(both...).command("reencrypt")
		require.Zero(t, code)
		require.Contains(t, said, "; 0 rows were written")
		if !embedded {
			p.stop()
		}
		p = w.start("BROKER_TOKEN_KEY=" + otherKey)
		works(p, "2")
		p.stop()
		code, said, stderr = w.setTo("BROKER_TOKEN_KEY="+otherKey).command("reencrypt", "--decrypt")
		require.Zero(t, code, stderr)
		require.Contains(t, said, "are stored as they are")
		p = w.start()
		works(p, "2")
		p.stop()
		require.Subset(t, w.keeps(append(secrets, sqs)...), []string{sqs, "consumer-token-2"}, "it is found where it is")
		shared := w.shared()
		require.GreaterOrEqual(t, len(shared), 3)
		for _, secret := range shared {
			require.Len(t, secret, 32)
		}
		require.ElementsMatch(t, shared, w.keeps(shared...))
		code, _, stderr = w.setTo(key...).command("reencrypt")
		require.Zero(t, code, stderr)
		require.Empty(t, w.keeps(append(append(secrets, sqs), shared...)...), "nothing is left of what was plain")
		p = w.start(key...)
		works(p, "2")
	})
}

// Where tokens are not shown, of those of producers and channels only digests are kept: they are shown by the PUT that
// brings them, and open what they opened, also after another key and without one.
func TestTokensThatAreNotShownAreKeptAsDigests(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		form := []string{"Content-Type", "application/x-www-form-urlencoded", "X-Broker-Admin-Token", adminToken}
		opens := func(p *process, producer, channel string, status int) {
			t.Helper()
			r := p.do("POST", "/channel/c/broadcast", "hello", "X-Broker-Channel-Token", channel,
				"X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", producer)
			require.Equal(t, status, r.status, r.body)
		}
		shown := func(p *process, path, token string) {
			t.Helper()
			r := p.do("GET", path, "", "X-Broker-Admin-Token", adminToken)
			require.Equal(t, 200, r.status, r.body)
			require.Equal(t, token, r.json(t)["Token"], path)
		}
		key := "BROKER_TOKEN_KEY=" + tokenKey
		p := w.start(key, "BROKER_SHOW_TOKENS=true")
		require.Equal(t, 201, p.do("PUT", "/producer/p", "token=producer-token-1", form...).status)
		require.Equal(t, 201, p.do("PUT", "/channel/c", "token=channel-token-1", form...).status)
		shown(p, "/producer/p", "producer-token-1")
		p.stop()

		hidden := []string{key, "BROKER_SHOW_TOKENS=false"}
		code, said, stderr := w.setTo(hidden...).command("reencrypt")
		require.Zero(t, code, stderr)
		require.Contains(t, said, "of 2 tokens digests are kept")
		p = w.start(hidden...)
		opens(p, "producer-token-1", "channel-token-1", 201)
		opens(p, "producer-token-2", "channel-token-1", 403)
		shown(p, "/channel/c", "")
		r := p.do("PUT", "/channel/c", "token=channel-token-1", form...)
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, "channel-token-1", r.json(t)["Token"])
		r = p.do("POST", "/channel/c/rotate-token", "overlap=1h", form...)
		require.Equal(t, 200, r.status, r.body)
		rotated := r.json(t)["Token"].(string)
		opens(p, "producer-token-1", rotated, 201)
		opens(p, "producer-token-1", "channel-token-1", 201)
		opens(p, "producer-token-1", "channel-token-2", 403)
		p.stop()

		p = w.start(key, "BROKER_SHOW_TOKENS=true")
		shown(p, "/channel/c", "")
		opens(p, "producer-token-1", rotated, 201)
		p.stop()
		code, said, stderr = w.setTo(hidden...).command("reencrypt", "--decrypt")
		require.Zero(t, code, stderr)
		require.Contains(t, said, "of 3 tokens digests are kept")
		require.Empty(t, w.keeps("producer-token-1", "channel-token-1", rotated))
		p = w.start()
		opens(p, "producer-token-1", rotated, 201)
		p.stop()
	})
}

// BenchmarkPublishWithAKey publishes with and without a key in turns, and reports the ratio of the rates.
func BenchmarkPublishWithAKey(b *testing.B) {
	var brokers [2]*process
	var took [2]time.Duration
	for i, key := range []string{"", tokenKey} {
		w := &world{t: b, env: []string{"BROKER_DATA_DIR=" + b.TempDir()}}
		brokers[i] = w.start("BROKER_TOKEN_KEY=" + key)
		brokers[i].sample()
		require.Equal(b, 201, brokers[i].broadcast("warm").status)
	}
	const turn = 100
	for n := 0; n < b.N; n += turn {
		for i := range brokers {
			i = (i + n/turn) % 2 // neither is always the first
			begun := time.Now()
			for range turn {
				if r := brokers[i].broadcast("x"); r.status != 201 {
					b.Fatal(r.status)
				}
			}
			took[i] += time.Since(begun)
		}
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "with/without")
}

// Where tokens are not shown, whoever publishes by the dashboard or the command line brings them.
func TestWhoeverPublishesBringsTokensThatAreNotShown(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start("BROKER_SHOW_TOKENS=false")
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "X-Broker-Admin-Token", adminToken}
	require.Equal(t, 201, p.do("PUT", "/producer/p", "token=producer-token-1", form...).status)
	require.Equal(t, 201, p.do("PUT", "/channel/c", "token=channel-token-1", form...).status)

	of := newTerminal(t, p)
	refused := of.run("broker ctl publish c hello --producer p")
	require.Equal(t, 2, refused.code, refused.stderr)
	require.Contains(t, refused.stderr, "does not show the token of /channel/c")
	require.Contains(t, refused.stderr, "set the tokens PENSTOCK_CHANNEL_TOKEN")
	require.NotContains(t, refused.stderr, "reached")
	channel, producer := "PENSTOCK_CHANNEL_TOKEN=channel-token-1", "PENSTOCK_PRODUCER_TOKEN=producer-token-1"
	require.Contains(t, of.ok("broker ctl publish c hello --producer p", channel, producer), "is published")
	require.Contains(t, of.ok("broker ctl publish c hello --producer made-now", channel), "is published")
	wrong := of.run("broker ctl publish c hello --producer p", channel, "PENSTOCK_PRODUCER_TOKEN=other")
	require.Equal(t, 2, wrong.code, wrong.stderr)
	require.Contains(t, wrong.stderr, "producer_token_mismatch")

	origin := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", p.base}
	r := p.do("POST", "/ui/login", "token="+adminToken, origin...)
	require.Equal(t, 303, r.status, r.body)
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	asks := `name="channelToken"`
	require.Contains(t, p.do("GET", "/ui/publish?channel=c", "", "Cookie", cookie).body, asks)
	fields, origin := "channel=c&producer=p&token=producer-token-1&payload=hi", append(origin, "Cookie", cookie)
	for _, token := range []string{"", "&channelToken=other"} {
		r = p.do("POST", "/ui/publish", fields+token, origin...)
		require.Equal(t, 403, r.status)
		require.Contains(t, r.body, "This must be the token of the channel, which is not shown to you.")
		require.Contains(t, r.body, asks)
	}
	r = p.do("POST", "/ui/publish", fields+"&channelToken=channel-token-1", origin...)
	require.Equal(t, 303, r.status, r.body)
}
