package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table of docs/configuration.md")

func TestTheDefaultsAreThePromisedOnes(t *testing.T) {
	c, err := readConfig([]string{"HOME=/root", "PATH=/bin", "BROKER=not ours"})
	require.NoError(t, err)
	require.True(t, c.openManagement())
	require.Equal(t, 4<<20, c.maxBody())
	require.Equal(t, "Penstock/"+version, c.UserAgent)
	require.Equal(t, 4<<30, c.bulkLimit)
	require.EqualValues(t, 1<<30, c.journalLimit)
	c.bodyLimit, c.bulkLimit, c.journalLimit = 0, 0, 0
	require.Equal(t, config{
		Listen: "127.0.0.1:8080", DataDir: "./data",
		DeliveryTimeout: 30 * time.Second, StopTimeout: 30 * time.Second, DrainTimeout: 30 * time.Second, RationalDelay: 2 * time.Second,
		MaxRetries: 5, RetryBackoff: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute},
		RetryMaxDelay: time.Hour, RetryJitter: 0.1, Reaper: true, QueueWindow: 2000,
		TimerSlack: 500 * time.Microsecond,
		Retention:  30 * 24 * time.Hour, IdempotencyRetention: 24 * time.Hour, TombstoneWindow: 24 * time.Hour, DLQ: "keep", RetryOn: "all", RateLimit: "none",
		Concurrency: "none", RetryShare: "25", Adaptive: "false", AdaptivePeriod: 30 * time.Second, AdaptiveDown: 5, AdaptiveSlow: 50, AdaptiveMax: 1000, Ordered: "false", OnBlocked: "block", SigningOverlap: "24h",
		AlertDLQGrowth: 100, AlertDLQWindow: 10 * time.Minute,
		ProducerMaxStored: "0", BulkMaxSize: "4GiB", BulkFetchTimeout: 10 * time.Minute, JournalMaxBytes: "1GiB", JournalMaxAge: 24 * time.Hour,
		MaxBody: "4MiB", PushConcurrency: 512, ConsumerConcurrency: 64, Egress: "private", FetchEgress: "public",
		UserAgent: "Penstock/" + version, ConsumerTokenHeader: "X-Broker-Consumer-Token", LogLevel: "info",
	}, c)
}

func TestDefaultsThatFollowOtherSettings(t *testing.T) {
	c, err := readConfig([]string{"BROKER_LISTEN=0.0.0.0:80", "BROKER_ADMIN_TOKEN=t", "BROKER_REDIS_URL=redis://r:6379", "BROKER_DELIVERY_TIMEOUT=7s"})
	require.NoError(t, err)
	require.False(t, c.openManagement())
	require.Equal(t, 100_000, c.QueueWindow)
	require.Equal(t, 7*time.Second, c.StopTimeout)

	c, err = readConfig([]string{"BROKER_LISTEN=:80", "BROKER_ADMIN_TOKEN=t", "BROKER_OPEN_MANAGEMENT=true", "BROKER_STOP_TIMEOUT=9s", "BROKER_QUEUE_WINDOW=5"})
	require.NoError(t, err)
	require.True(t, c.openManagement())
	require.Equal(t, 5, c.QueueWindow)
	require.Equal(t, 9*time.Second, c.StopTimeout)

	for line, open := range map[string]bool{"BROKER_OPEN_MANAGEMENT=false": false, "BROKER_OPEN_MANAGEMENT=true": true, "BROKER_ADMIN_TOKEN=t": false, "BROKER_ADMIN_TOKEN=": true} {
		c, err = readConfig([]string{line})
		require.NoError(t, err)
		require.Equal(t, open, c.openManagement(), line)
	}
}

func TestTheListenAddressIsAnAllowedHost(t *testing.T) {
	for listen, want := range map[string][]string{
		"127.0.0.1:80": {"127.0.0.1", "a.b", "::1"}, "broker.lan:80": {"broker.lan", "a.b", "::1"}, "0.0.0.0:80": {"a.b", "::1"}, "[::]:80": {"a.b", "::1"}, ":80": {"a.b", "::1"},
	} {
		c, err := readConfig([]string{"BROKER_LISTEN=" + listen, "BROKER_ADMIN_TOKEN=t", "BROKER_ALLOWED_HOSTS=a.b,::1"})
		require.NoError(t, err)
		require.Equal(t, want, c.allowedHosts(), listen)
	}
}

func TestEveryFormOfAValueIsRead(t *testing.T) {
	c, err := readConfig([]string{"BROKER_RETRY_BACKOFF=1s,2m30s", "BROKER_EGRESS=public", "BROKER_EGRESS_ALLOW=10.0.0.0/8,fd00::/8",
		"BROKER_MAX_RETRIES=0", "BROKER_RETRY_JITTER=0", "BROKER_REAPER=false", "BROKER_LOG_LEVEL=", "BROKER_MYSQL_DSN=u:p=w@tcp(h)/d?x=y"})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{time.Second, 150 * time.Second}, c.RetryBackoff)
	require.Equal(t, []string{"10.0.0.0/8", "fd00::/8"}, c.EgressAllow)
	require.Zero(t, c.MaxRetries)
	require.Zero(t, c.RetryJitter)
	require.False(t, c.Reaper)
	require.Equal(t, "info", c.LogLevel, "an empty variable is an absent one")
	require.Equal(t, "u:p=w@tcp(h)/d?x=y", c.MySQLDSN)
	for s, want := range map[string]int{"1": 1, "4096": 4096, "1KiB": 1 << 10, "64MiB": 64 << 20, "3 MiB": 3 << 20} {
		c, err := readConfig([]string{"BROKER_MAX_BODY=" + s})
		require.NoError(t, err, s)
		require.Equal(t, want, c.maxBody(), s)
	}
}

func TestAnySettingCanComeFromAFile(t *testing.T) {
	for f := range fields() {
		name := f.Tag.Get("env")
		file := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
		_, err := readConfig([]string{name + "_FILE=" + file})
		if err != nil {
			require.NotContains(t, err.Error(), "no setting", name)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("from-file\r\n"), 0o600))
	c, err := readConfig([]string{"BROKER_ADMIN_TOKEN_FILE=" + file})
	require.NoError(t, err)
	require.Equal(t, "from-file", c.AdminToken, "the final line break is not part of it")
	_, err = readConfig([]string{"BROKER_ADMIN_TOKEN_FILE=" + file, "BROKER_ADMIN_TOKEN=other"})
	require.ErrorContains(t, err, "BROKER_ADMIN_TOKEN")
	require.NotContains(t, err.Error(), "other")
	_, err = readConfig([]string{"BROKER_ADMIN_TOKEN_FILE=" + file + "-missing"})
	require.ErrorContains(t, err, "BROKER_ADMIN_TOKEN_FILE")
}

func TestAFileThatHoldsNoValueIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ name, content, want string }{
		{"empty", "", "is empty"},
		{"line-breaks", "\n\r\n", "is empty"},
		{"blank", " \t\n", "is empty"},
		{"huge", strings.Repeat("secret", maxSettingBytes), "more than 65536 bytes"},
	} {
		file := filepath.Join(dir, tc.name)
		require.NoError(t, os.WriteFile(file, []byte(tc.content), 0o600))
		for _, name := range []string{"BROKER_ADMIN_TOKEN_FILE", "BROKER_MYSQL_DSN_FILE", "BROKER_MAX_RETRIES_FILE"} {
			_, err := readConfig([]string{name + "=" + file})
			require.ErrorContains(t, err, name+": the file")
			require.ErrorContains(t, err, tc.want, tc.name)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	_, err := readConfig([]string{"BROKER_ADMIN_TOKEN_FILE=" + dir})
	require.ErrorContains(t, err, "BROKER_ADMIN_TOKEN_FILE: the file cannot be read")
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"BROKER_LISTN=:80", "BROKER_LISTN"},
		{"BROKER_RETRY=5", "BROKER_RETRY"},
		{"BROKER_LOG_FILE_FILE_FILE=x", "BROKER_LOG_FILE_FILE_FILE"},
		{"BROKER_DELIVERY_TIMEOUT=30", "BROKER_DELIVERY_TIMEOUT"},
		{"BROKER_DELIVERY_TIMEOUT=0s", "BROKER_DELIVERY_TIMEOUT"},
		{"BROKER_STOP_TIMEOUT=-1s", "BROKER_STOP_TIMEOUT"},
		{"BROKER_RATIONAL_DELAY=two", "BROKER_RATIONAL_DELAY"},
		{"BROKER_MAX_RETRIES=-1", "BROKER_MAX_RETRIES"},
		{"BROKER_MAX_RETRIES=many", "BROKER_MAX_RETRIES"},
		{"BROKER_RETRY_BACKOFF=5s,x", "BROKER_RETRY_BACKOFF"},
		{"BROKER_TIMER_SLACK=11ms", "BROKER_TIMER_SLACK"},
		{"BROKER_TIMER_SLACK=-1us", "BROKER_TIMER_SLACK"},
		{"BROKER_RETRY_BACKOFF=5s,-1s", "BROKER_RETRY_BACKOFF"},
		{"BROKER_RETRY_JITTER=1.5", "BROKER_RETRY_JITTER"},
		{"BROKER_RETRY_JITTER=NaN", "BROKER_RETRY_JITTER"},
		{"BROKER_REAPER=maybe", "BROKER_REAPER"},
		{"BROKER_OPEN_MANAGEMENT=maybe", "BROKER_OPEN_MANAGEMENT"},
		{"BROKER_ALLOWED_HOSTS=*", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_ALLOWED_HOSTS=a,*.b", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_ALLOWED_HOSTS=a:80", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_ALLOWED_HOSTS=http://a", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_ALLOWED_HOSTS=a,,b", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_ALLOWED_HOSTS=a.", "BROKER_ALLOWED_HOSTS"},
		{"BROKER_RETRIGGER_URL=/relative", "BROKER_RETRIGGER_URL"},
		{"BROKER_RETRIGGER_URL=http://lb/", "BROKER_ADMIN_TOKEN"},
		{"BROKER_QUEUE_WINDOW=-5", "BROKER_QUEUE_WINDOW"},
		{"BROKER_RETENTION=-1h", "BROKER_RETENTION"},
		{"BROKER_RETENTION=61s", "at least 1m2s"},
		{"BROKER_DEAD_RETENTION=1s", "BROKER_DEAD_RETENTION"},
		{"BROKER_RETENTION=forever", "BROKER_RETENTION"},
		{"BROKER_MAX_BODY=4MB", "BROKER_MAX_BODY"},
		{"BROKER_MAX_BODY=0", "BROKER_MAX_BODY"},
		{"BROKER_MAX_BODY=99999999999999999999", "BROKER_MAX_BODY"},
		{"BROKER_MAX_BODY=1GiB", "BROKER_MAX_BODY"},
		{"BROKER_PUSH_CONCURRENCY=0", "BROKER_PUSH_CONCURRENCY"},
		{"BROKER_CONSUMER_CONCURRENCY=0", "BROKER_CONSUMER_CONCURRENCY"},
		{"BROKER_EGRESS=open", "BROKER_EGRESS"},
		{"BROKER_EGRESS_ALLOW=10.0.0.0/99", "BROKER_EGRESS_ALLOW"},
		{"BROKER_CONSUMER_TOKEN_HEADER=X Y", "BROKER_CONSUMER_TOKEN_HEADER"},
		{"BROKER_CONSUMER_TOKEN_HEADER=Content-Length", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=content_type", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=HOST", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=User-Agent", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=X-Request-ID", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=X-Broker-Message-ID", "deliveries use for something else"},
		{"BROKER_CONSUMER_TOKEN_HEADER=x_broker_consumer_token", "deliveries use for something else"},
		{"BROKER_ADMIN_TOKEN=two words", "BROKER_ADMIN_TOKEN contains a blank"},
		{"BROKER_ADMIN_TOKEN= ", "BROKER_ADMIN_TOKEN contains a blank"},
		{"BROKER_ADMIN_TOKEN=tail\t", "BROKER_ADMIN_TOKEN contains a blank"},
		{"BROKER_ADMIN_TOKEN=two\nlines", "BROKER_ADMIN_TOKEN contains a blank"},
		{"BROKER_ADMIN_TOKEN=no\u00a0break", "BROKER_ADMIN_TOKEN contains a blank"},
		{"BROKER_USER_AGENT=a\nb", "BROKER_USER_AGENT"},
		{"BROKER_LOG_LEVEL=loud", "BROKER_LOG_LEVEL"},
		{"BROKER_LOG_FORMAT=xml", "BROKER_LOG_FORMAT"},
		{"BROKER_LISTEN=8080", "BROKER_LISTEN"},
		{"BROKER_REDIS_MASTER=m", "BROKER_REDIS_MASTER"},
		{"BROKER_ALERT_FROM=a@example.com", "needs BROKER_ALERT_SMTP_URL"},
		{"BROKER_ALERT_TO=a@example.com", "needs BROKER_ALERT_SMTP_URL"},
		{"BROKER_ALERT_SMTP_URL=http://mail", "BROKER_ALERT_SMTP_URL"},
		{"BROKER_ALERT_SMTP_URL=smtp://mail", "BROKER_ALERT_FROM"},
		{"BROKER_ALERT_WEBHOOK_URL=/relative", "BROKER_ALERT_WEBHOOK_URL"},
		{"BROKER_ALERT_WEBHOOK_URL=http://169.254.169.254/", "BROKER_ALERT_WEBHOOK_URL"},
		{"BROKER_ALERT_WEBHOOK_SECRET=" + alertSecret, "needs BROKER_ALERT_WEBHOOK_URL"},
		{"BROKER_ALERT_WEBHOOK_SECRET=generate", "must be whsec_"},
		{"BROKER_ALERT_DLQ_GROWTH=-1", "BROKER_ALERT_DLQ_GROWTH"},
		{"BROKER_ALERT_DLQ_GROWTH=10001", "BROKER_ALERT_DLQ_GROWTH"},
		{"BROKER_ALERT_DLQ_WINDOW=0", "BROKER_ALERT_DLQ_WINDOW"},
		{"BROKER_DLQ=forward:~alerts", "BROKER_DLQ"},
	} {
		_, err := readConfig([]string{tc.line})
		require.ErrorContains(t, err, tc.want, tc.line)
	}
}

func TestDeadLettersAreRemovedOnlyWithTheirMessages(t *testing.T) {
	_, err := readConfig([]string{"BROKER_RETENTION=0", "BROKER_DEAD_RETENTION=1h"})
	require.ErrorContains(t, err, "BROKER_DEAD_RETENTION needs BROKER_RETENTION")
	c, err := readConfig([]string{"BROKER_RETENTION=0"})
	require.NoError(t, err)
	require.Zero(t, c.Retention)
	c, err = readConfig([]string{"BROKER_RETENTION=62s", "BROKER_DEAD_RETENTION=62s"})
	require.NoError(t, err)
	require.Equal(t, c.Retention, c.DeadRetention)
}

func TestWithoutAnAdminTokenOnlyLoopbackIsServed(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:8080", "localhost:8080", "127.9.9.9:1"} {
		_, err := readConfig([]string{"BROKER_LISTEN=" + listen})
		require.NoError(t, err, listen)
	}
	for _, listen := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.168.1.2:80", "broker.example:80"} {
		_, err := readConfig([]string{"BROKER_LISTEN=" + listen})
		require.ErrorContains(t, err, "BROKER_ADMIN_TOKEN", listen)
		_, err = readConfig([]string{"BROKER_LISTEN=" + listen, "BROKER_ADMIN_TOKEN=t"})
		require.NoError(t, err, listen)
	}
}

func TestErrorsNeverShowASecret(t *testing.T) {
	_, err := readConfig([]string{"BROKER_ADMIN_TOKEN=hunter2", "BROKER_MYSQL_DSN=u:hunter2@/d", "BROKER_REDIS_URL=redis://:hunter2@h",
		"BROKER_TOKEN=hunter2", "BROKER_RETRIGGER_URL=http://u:hunter2@", "BROKER_MAX_BODY=x"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = readConfig([]string{"BROKER_ADMIN_TOKEN=hunter2", "BROKER_MYSQL_DSN=u:hunter2@/d", "BROKER_REDIS_URL=redis://:hunter2@h",
		"BROKER_RETRIGGER_URL=//u:hunter2@", "BROKER_MAX_BODY=x"})
	require.ErrorContains(t, err, "BROKER_RETRIGGER_URL")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = readConfig([]string{"BROKER_ALERT_SMTP_URL=smtp://u:hunter2@mail.example?tls=none", "BROKER_ALERT_WEBHOOK_URL=http://u:hunter2@h/?hunter2", "BROKER_ALERT_WEBHOOK_SECRET=hunter2"})
	require.ErrorContains(t, err, "BROKER_ALERT_SMTP_URL has a password and tls=none")
	require.ErrorContains(t, err, "BROKER_ALERT_WEBHOOK_URL")
	require.ErrorContains(t, err, "BROKER_ALERT_WEBHOOK_SECRET")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestAllThatIsWrongIsToldAtOnce(t *testing.T) {
	_, err := readConfig([]string{"BROKER_LISTEN=x", "BROKER_LOG_LEVEL=x", "BROKER_EGRESS=x"})
	for _, name := range []string{"BROKER_LISTEN", "BROKER_LOG_LEVEL", "BROKER_EGRESS"} {
		require.ErrorContains(t, err, name)
	}
}

// docTable is the table of docs/configuration.md.
func docTable() string {
	var b strings.Builder
	b.WriteString("| name | default | meaning |\n| --- | --- | --- |\n")
	for f := range fields() {
		value := "empty"
		if v := f.Tag.Get("envDefault"); v != "" {
			value = "`" + v + "`"
		} else if v := f.Tag.Get("default"); v != "" {
			if value = v; strings.ContainsAny(v, "<>") {
				value = "`" + v + "`" // else it reads as HTML
			}
		}
		meaning := f.Tag.Get("doc")
		if f.Tag.Get("secret") == "true" {
			meaning += " Secret."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Tag.Get("env"), value, meaning)
	}
	return b.String()
}

func TestThePageOfSettingsIsTrue(t *testing.T) {
	const begin, end = "<!-- settings -->\n", "<!-- /settings -->"
	file := filepath.Join("..", "..", "docs", "configuration.md")
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok)
	table, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(head+begin+docTable()+end+tail), 0o644))
		return
	}
	require.Equal(t, docTable(), table, "go test ./cmd/broker -run Page -update rewrites it")
}

func TestEverySettingHasAMeaning(t *testing.T) {
	for i := range reflect.TypeFor[config]().NumField() {
		f := reflect.TypeFor[config]().Field(i)
		if !f.IsExported() {
			continue
		}
		require.True(t, strings.HasPrefix(f.Tag.Get("env"), "BROKER_"), f.Name)
		require.NotEmpty(t, f.Tag.Get("doc"), f.Name)
	}
}
