package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the tables of the pages of settings")

func TestTheDefaultsAreThePromisedOnes(t *testing.T) {
	c, err := readConfig([]string{"HOME=/root", "PATH=/bin", "BROKER=not ours"})
	require.NoError(t, err)
	require.True(t, c.openManagement())
	require.Equal(t, 4<<20, c.maxBody())
	require.Equal(t, "Penstock/"+version, c.UserAgent)
	require.Equal(t, 4<<30, c.bulkLimit)
	require.EqualValues(t, 1<<30, c.journalLimit)
	require.Empty(t, c.given)
	c.bodyLimit, c.bulkLimit, c.journalLimit, c.given = 0, 0, 0, nil
	require.Equal(t, config{
		Listen: "127.0.0.1:8080", DataDir: "./data", AuthFailures: 100,
		GatewayTolerance: 5 * time.Minute, GatewayExempt: []string{"/livez", "/readyz", "/metrics", "/_status"},
		DeliveryTimeout: 30 * time.Second, StopTimeout: 30 * time.Second, DrainTimeout: 30 * time.Second,
		RationalDelay: 2 * time.Second,
		MaxRetries:    5, RetryBackoff: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute},
		RetryMaxDelay: time.Hour, RetryJitter: 0.1, Reaper: true, QueueWindow: 2000,
		TimerSlack: 500 * time.Microsecond, NoWorkerAfter: time.Minute, TraceFollow: time.Minute,
		ArchiveRegion: "us-east-1", ArchivePathStyle: true,
		Retention: 30 * 24 * time.Hour, IdempotencyRetention: 24 * time.Hour, TombstoneWindow: 24 * time.Hour, DLQ: "keep",
		RetryOn: "all", RateLimit: "none",
		Concurrency: "none", RetryShare: "25", Adaptive: "false", AdaptivePeriod: 30 * time.Second, AdaptiveDown: 5,
		AdaptiveSlow: 50, AdaptiveMax: 1000, Ordered: "false", OnBlocked: "block", SigningOverlap: "24h",
		AlertDLQGrowth: 100, AlertDLQWindow: 10 * time.Minute,
		ProducerMaxStored: "0", BulkMaxSize: "4GiB", BulkFetchTimeout: 10 * time.Minute, JournalMaxBytes: "1GiB",
		JournalMaxAge: 24 * time.Hour,
		MaxBody:       "4MiB", PushConcurrency: 512, ConsumerConcurrency: 64, Egress: "private", FetchEgress: "public",
		UserAgent: "Penstock/" + version, ConsumerTokenHeader: "X-Broker-Consumer-Token",
		SQS: "on", UI: "on", UIPayloads: "show", AccessLog: "off", LogLevel: "info",
	}, c)
}

func TestDefaultsThatFollowOtherSettings(t *testing.T) {
	c, err := readConfig([]string{"BROKER_LISTEN=0.0.0.0:80", "BROKER_ADMIN_TOKEN=t", "BROKER_REDIS_URL=redis://r:6379",
		"BROKER_DELIVERY_TIMEOUT=7s"})
	require.NoError(t, err)
	require.False(t, c.openManagement())
	require.Equal(t, 100_000, c.QueueWindow)
	require.Equal(t, 7*time.Second, c.StopTimeout)

	c, err = readConfig([]string{"BROKER_LISTEN=:80", "BROKER_ADMIN_TOKEN=t", "BROKER_OPEN_MANAGEMENT=true",
		"BROKER_STOP_TIMEOUT=9s", "BROKER_QUEUE_WINDOW=5"})
	require.NoError(t, err)
	require.True(t, c.openManagement())
	require.Equal(t, 5, c.QueueWindow)
	require.Equal(t, 9*time.Second, c.StopTimeout)

	for line, open := range map[string]bool{"BROKER_OPEN_MANAGEMENT=false": false, "BROKER_OPEN_MANAGEMENT=true": true,
		"BROKER_ADMIN_TOKEN=t": false, "BROKER_ADMIN_TOKEN=": true} {
		c, err = readConfig([]string{line})
		require.NoError(t, err)
		require.Equal(t, open, c.openManagement(), line)
	}
}

func TestTheListenAddressIsAnAllowedHost(t *testing.T) {
	for listen, want := range map[string][]string{
		"127.0.0.1:80": {"127.0.0.1", "a.b", "::1"}, "broker.lan:80": {"broker.lan", "a.b", "::1"},
		"0.0.0.0:80": {"a.b", "::1"}, "[::]:80": {"a.b", "::1"}, ":80": {"a.b", "::1"},
	} {
		c, err := readConfig([]string{"BROKER_LISTEN=" + listen, "BROKER_ADMIN_TOKEN=t", "BROKER_ALLOWED_HOSTS=a.b,::1"})
		require.NoError(t, err)
		require.Equal(t, want, c.allowedHosts(), listen)
	}
}

func TestEveryFormOfAValueIsRead(t *testing.T) {
	c, err := readConfig([]string{"BROKER_RETRY_BACKOFF=1s,2m30s", "BROKER_EGRESS=public",
		"BROKER_EGRESS_ALLOW=10.0.0.0/8,fd00::/8",
		"BROKER_MAX_RETRIES=0", "BROKER_RETRY_JITTER=0", "BROKER_REAPER=false", "BROKER_LOG_LEVEL=",
		"BROKER_MYSQL_DSN=u:p=w@tcp(h)/d?x=y"})
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
		{"BROKER_TOKEN_KEY=short", "BROKER_TOKEN_KEY"},
		{"BROKER_TOKEN_KEY=" + tokenKey + tokenKey, "BROKER_TOKEN_KEY"},
		{"BROKER_TOKEN_KEY=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "BROKER_TOKEN_KEY"},
		{"BROKER_TOKEN_KEY_PREVIOUS=" + tokenKey, "BROKER_TOKEN_KEY_PREVIOUS"},
		{"BROKER_AUTH_FAILURES=-1", "BROKER_AUTH_FAILURES"},
		{"BROKER_TRUSTED_PROXIES=10.0.0.0/8,proxy", "BROKER_TRUSTED_PROXIES"},
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
		{"BROKER_ATTEMPT_RETENTION=1s", "BROKER_ATTEMPT_RETENTION"},
		{"BROKER_ARCHIVE_S3_BUCKET=cold", "BROKER_ARCHIVE_S3_BUCKET"},
		{"BROKER_ARCHIVE_S3_ENDPOINT=https://s3.example.com", "BROKER_ARCHIVE_S3_ENDPOINT"},
		{"BROKER_RETENTION=forever", "BROKER_RETENTION"},
		{"BROKER_MAX_BODY=4MBit", "BROKER_MAX_BODY"},
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
		{"BROKER_H2C_LISTEN=8080", "BROKER_H2C_LISTEN must be host:port"},
		{"BROKER_H2C_LISTEN=0.0.0.0:8081", "which needs BROKER_ADMIN_TOKEN"},
		{"BROKER_TLS_LISTEN=127.0.0.1:0", "BROKER_TLS_LISTEN needs BROKER_TLS_CERT and BROKER_TLS_KEY"},
		{"BROKER_TLS_CERT=/none", "BROKER_TLS_KEY is missing"},
		{"BROKER_TLS_KEY=/none", "BROKER_TLS_CERT is missing"},
		{"BROKER_TLS_CLIENT_CA=/none", "BROKER_TLS_CLIENT_CA needs BROKER_TLS_LISTEN"},
		{"BROKER_TLS_PRINCIPALS=CN=a=dlq", "BROKER_TLS_PRINCIPALS needs BROKER_TLS_CLIENT_CA"},
		{"BROKER_TLS_PRINCIPALS=CN=a=dlq;CN=b=chanel:c", "BROKER_TLS_PRINCIPALS is wrong at entry 2 (CN=b=chanel:c)"},
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

func TestTheFilesOfTLSAreReadAtTheStart(t *testing.T) {
	_, err := readConfig([]string{"BROKER_TLS_CERT=/none/cert", "BROKER_TLS_KEY=/none/key"})
	require.ErrorContains(t, err, "BROKER_TLS_LISTEN is missing")
	files := []string{"BROKER_TLS_CERT=/none/cert", "BROKER_TLS_KEY=/none/key"}
	_, err = readConfig(append(files, "BROKER_TLS_LISTEN=127.0.0.1:0"))
	require.ErrorContains(t, err, "BROKER_TLS_CERT names a file that cannot be read: /none/cert: no such file")
	_, err = readConfig(append(files, "BROKER_TLS_LISTEN=0.0.0.0:8443"))
	require.ErrorContains(t, err, "which needs BROKER_ADMIN_TOKEN")
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
	_, err := readConfig([]string{"BROKER_ADMIN_TOKEN=hunter2", "BROKER_MYSQL_DSN=u:hunter2@/d",
		"BROKER_REDIS_URL=redis://:hunter2@h",
		"BROKER_TOKEN=hunter2", "BROKER_RETRIGGER_URL=http://u:hunter2@", "BROKER_MAX_BODY=x"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	_, err = readConfig([]string{"BROKER_ADMIN_TOKEN=hunter2", "BROKER_MYSQL_DSN=u:hunter2@/d",
		"BROKER_REDIS_URL=redis://:hunter2@h",
		"BROKER_RETRIGGER_URL=//u:hunter2@", "BROKER_MAX_BODY=x"})
	require.ErrorContains(t, err, "BROKER_RETRIGGER_URL")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = readConfig([]string{"BROKER_ALERT_SMTP_URL=smtp://u:hunter2@mail.example?tls=none",
		"BROKER_ALERT_WEBHOOK_URL=http://u:hunter2@h/?hunter2", "BROKER_ALERT_WEBHOOK_SECRET=hunter2"})
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

// wrongLines are the lines of an error of readConfig.
func wrongLines(t *testing.T, environ ...string) []string {
	t.Helper()
	c, err := readConfig(environ, (*config).checkFolder, (*config).readSeed, (*config).checkLogFile)
	if err == nil {
		require.Empty(t, c.misnamed)
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestMistakesOfEveryKindAreToldAtOnce(t *testing.T) {
	dir := t.TempDir()
	seed := filepath.Join(dir, "seed")
	require.NoError(t, os.WriteFile(seed, []byte("[initial-channels]\nseed-secret\nc=C\nseed-secret too\n"), 0o600))
	lines := wrongLines(t,
		"BROKER_PORT=8080", "BROKER_TOKN=hunter2", // names
		"BROKER_ADMIN_TOKEN_FILE="+dir+"/none",           // files
		"BROKER_DELIVERY_TIMEOUT=30", "BROKER_REAPER=no", // forms
		"BROKER_MAX_RETRIES=-1", "BROKER_MAX_BODY=1GiB", // ranges
		"BROKER_REDIS_MASTER=m", "BROKER_ALERT_TO=a@example.com", // what goes together
		"BROKER_MYSQL_DSN=::hunter2::", "BROKER_SEED_FILE="+seed, "BROKER_LOG_FILE="+dir,
		"BROKER_EGRESS=open", "BROKER_EGRESS_ALLOW=10.0.0.0/99,x", "BROKER_FETCH_EGRESS_ALLOW=y",
		"BROKER_LISTEN=0.0.0.0:8080", "BROKER_RETRIGGER_URL=http://lb/", // fine, because of a token that cannot be read
	)
	require.True(t, slices.IsSorted(lines), "%q", lines)
	names := []string{}
	for _, line := range lines {
		name := regexp.MustCompile(`^BROKER_[A-Z_]+`).FindString(line)
		require.NotEmpty(t, name, line)
		names = append(names, name)
		require.NotContains(t, line, "hunter2")
		require.NotContains(t, line, "seed-secret")
	}
	require.Equal(t, []string{
		"BROKER_ADMIN_TOKEN_FILE", "BROKER_ALERT_TO", "BROKER_DELIVERY_TIMEOUT", "BROKER_EGRESS", "BROKER_EGRESS_ALLOW",
		"BROKER_EGRESS_ALLOW", "BROKER_FETCH_EGRESS_ALLOW",
		"BROKER_LOG_FILE", "BROKER_MAX_BODY", "BROKER_MAX_RETRIES", "BROKER_MYSQL_DSN", "BROKER_PORT", "BROKER_REAPER",
		"BROKER_REDIS_MASTER", "BROKER_SEED_FILE", "BROKER_SEED_FILE", "BROKER_TOKN",
	}, names)
}

// One mistake is one line: nothing is said of what follows from it.
func TestAMistakeCausesNoOther(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	for _, environ := range [][]string{
		{"BROKER_ADMIN_TOKEN_FILE=" + dir + "/empty", "BROKER_LISTEN=:8080", "BROKER_RETRIGGER_URL=http://lb/"},
		{"BROKER_DELIVERY_TIMEOUT=0s"}, {"BROKER_DELIVERY_TIMEOUT=forever"}, {"BROKER_DELIVERY_TIMEOUT=8d"},
		{"BROKER_RATIONAL_DELAY=169h", "BROKER_RETENTION=170h"}, {"BROKER_RATIONAL_DELAY=two", "BROKER_RETENTION=61s"},
		{"BROKER_RETENTION=-1h", "BROKER_DEAD_RETENTION=30d"}, {"BROKER_RETENTION=x", "BROKER_DEAD_RETENTION=30d"},
		{"BROKER_ADAPTIVE_DOWN=x", "BROKER_ADAPTIVE_SLOW=3"},
		{"BROKER_REDIS_URL_FILE=" + dir + "/empty", "BROKER_REDIS_MASTER=m"},
		{"BROKER_ALERT_SMTP_URL_FILE=" + dir + "/none", "BROKER_ALERT_FROM=a@example.com", "BROKER_ALERT_TO=a@example.com"},
		{"BROKER_ALERT_WEBHOOK_URL_FILE=" + dir + "/none", "BROKER_ALERT_WEBHOOK_SECRET=" + alertSecret},
		{"BROKER_MYSQL_DSN_FILE=" + dir + "/none", "BROKER_DATA_DIR=" + dir + "/empty"},
		{"BROKER_EGRESS=open", "BROKER_ALERT_WEBHOOK_URL=https://example.com/"},
		{"BROKER_MAX_RETRIES_FILE=" + dir + "/none"},
	} {
		require.Len(t, wrongLines(t, environ...), 1, "%q: %q", environ, wrongLines(t, environ...))
	}
	require.Len(t, wrongLines(t, "BROKER_ALERT_SMTP_URL=http://mail", "BROKER_ALERT_FROM=x",
		"BROKER_ALERT_TO=a@example.com,y"), 3)
}

func TestTheNearestSettingIsNamed(t *testing.T) {
	for name, want := range map[string]string{
		"BROKER_PORT": "BROKER_LISTEN", "BROKER_ADDR": "BROKER_LISTEN", "BROKER_HOST": "BROKER_LISTEN",
		"BROKER_HTTP_PORT": "BROKER_LISTEN", "BROKER_BIND_ADDRESS": "BROKER_LISTEN", "BROKER_LISTN": "BROKER_LISTEN",
		"BROKER_LISTEN_ADDR": "BROKER_LISTEN", "BROKER_DATABASE_URL": "BROKER_MYSQL_DSN", "BROKER_DB": "BROKER_MYSQL_DSN",
		"BROKER_DSN": "BROKER_MYSQL_DSN", "BROKER_MYSQL_URL": "BROKER_MYSQL_DSN", "BROKER_MYSQL_HOST": "BROKER_MYSQL_DSN",
		"BROKER_REDIS": "BROKER_REDIS_URL", "BROKER_REDIS_ADDR": "BROKER_REDIS_URL",
		"BROKER_REDIS_PASSWORD": "BROKER_REDIS_URL", "BROKER_LOG": "BROKER_LOG_LEVEL", "BROKER_LOGLEVEL": "BROKER_LOG_LEVEL",
		"BROKER_DEBUG": "BROKER_LOG_LEVEL",
		"BROKER_TOKEN": "BROKER_ADMIN_TOKEN", "BROKER_ADMINTOKEN": "BROKER_ADMIN_TOKEN",
		"BROKER_ADMIN_TOKENS_FILE": "BROKER_ADMIN_TOKEN_FILE", "BROKER_TOKEN_FILE": "BROKER_ADMIN_TOKEN_FILE",
		"BROKER_TIMEOUT":   "BROKER_DELIVERY_TIMEOUT",
		"BROKER_MAX_RETRY": "BROKER_MAX_RETRIES", "BROKER_RETRIES": "BROKER_MAX_RETRIES", "BROKER_MAXBODY": "BROKER_MAX_BODY",
		"BROKER_MAX_BODY_SIZE": "BROKER_MAX_BODY", "BROKER_SEED": "BROKER_SEED_FILE", "BROKER_DATA": "BROKER_DATA_DIR",
		"BROKER_ALERT_DLQGROWTH": "BROKER_ALERT_DLQ_GROWTH", "BROKER_listen": "BROKER_LISTEN",
		"BROKER_DRAIN_TIME_OUT": "BROKER_DRAIN_TIMEOUT",
	} {
		require.Equal(t, []string{name + " is no setting of this broker; did you mean " + want + "?"},
			wrongLines(t, name+"=hunter2"))
	}
	for _, name := range []string{"BROKER_", "BROKER_X", "BROKER_COLOUR", "BROKER__", "BROKER_" +
		strings.Repeat("X", 10_000)} {
		require.Equal(t, []string{name + " is no setting of this broker; docs/configuration.md lists the settings"},
			wrongLines(t, name+"=hunter2"))
	}
	_, known := settingNames()
	for _, name := range familiar {
		require.True(t, known[settingPrefix+name], name)
	}
}

// Such a variable may belong to another program: the broker starts, and says that it ignores it.
func TestVariablesThatLookLikeSettingsArePassedOver(t *testing.T) {
	c, err := readConfig([]string{"PENSTOCK_LISTEN=:80", "broker_max_body=x", "Penstock_Admin_Token_File=x",
		"PENSTOCK_TEST_MYSQL=x", "MYSQL_DSN=x", "LISTEN=x", "broker=x"})
	require.NoError(t, err)
	require.Equal(t, []string{"PENSTOCK_LISTEN", "broker_max_body", "Penstock_Admin_Token_File"}, c.misnamed)
}

func TestDurationsAndSizesAreReadAsPeopleWriteThem(t *testing.T) {
	c, err := readConfig([]string{"BROKER_RETENTION=30d", "BROKER_DEAD_RETENTION=2w", "BROKER_TTL=1d12h",
		"BROKER_DRAIN_DELAY=0d", "BROKER_RETRY_BACKOFF=5s, 30s,1d", "BROKER_SIGNING_OVERLAP=2d", "BROKER_DLQ=expire:30d",
		"BROKER_RATE_LIMIT=1000/1d", "BROKER_MAX_BODY=4MB", "BROKER_BULK_MAX_SIZE=2 GB", "BROKER_JOURNAL_MAX_BYTES=64kib",
		"BROKER_PRODUCER_MAX_STORED=10gb", "BROKER_ALLOWED_HOSTS=a, b"})
	require.NoError(t, err)
	const day = 24 * time.Hour
	require.Equal(t, 30*day, c.Retention)
	require.Equal(t, 14*day, c.DeadRetention)
	require.Equal(t, 36*time.Hour, c.TTL)
	require.Zero(t, c.drainDelay())
	require.Equal(t, []time.Duration{5 * time.Second, 30 * time.Second, day}, c.RetryBackoff)
	require.Equal(t, 30*day, c.policy().DLQ.After)
	require.Equal(t, day, c.policy().RateLimit.Per)
	require.Equal(t, 4_000_000, c.maxBody())
	require.Equal(t, 2_000_000_000, c.bulkLimit)
	require.EqualValues(t, 64<<10, c.journalLimit)
	require.EqualValues(t, 10_000_000_000, c.storedLimit)
	require.Equal(t, []string{"a", "b"}, c.AllowedHosts)
}

// The commands that open a store print all mistakes under one line, and start nothing.
func TestAStartWithMistakesPrintsOneLineForEach(t *testing.T) {
	data := t.TempDir() + "/data"
	t.Setenv("BROKER_DATA_DIR", data)
	t.Setenv("BROKER_PORT", "8080")
	t.Setenv("BROKER_MAX_RETRIES", "x")
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"backup", data + ".copy"}, {"journal", "replay", data}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(args, &stdout, &stderr), args)
		require.Equal(t, "broker: the settings cannot be used (docs/configuration.md):\nBROKER_MAX_RETRIES: \"x\" is not "+
			"a whole number\nBROKER_PORT is no setting of this broker; did you mean BROKER_LISTEN?\n", stderr.String())
		require.Empty(t, stdout.String())
		require.NoDirExists(t, data)
	}
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
