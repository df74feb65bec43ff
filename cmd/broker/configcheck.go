package main

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
	"github.com/penstock-broker/penstock/redisq"
)

// check refuses settings that are out of range or do not go together.
func (c *config) check(f *faults) {
	c.checkListener(f)
	c.checkTokens(f)
	c.checkTimes(f)
	c.checkAttempts(f)
	c.checkBounds(f)
	c.checkConsumers(f)
	c.checkAlerts(f)
	c.checkStores(f)
	c.checkArchive(f)
	c.checkLog(f)
	c.checkTraces(f)
	if err := c.reports.Check(); err != nil {
		f.add(sentryDSN, "%v", err)
	}
}

// checkListener checks who reaches the broker, and with which token.
func (c *config) checkListener(f *faults) {
	c.checkAddress(f, "BROKER_LISTEN", c.Listen, "127.0.0.1:8080")
	c.checkFront(f)
	c.checkPrincipals(f)
	for _, name := range c.AllowedHosts {
		if !isHostname(name) {
			f.add("BROKER_ALLOWED_HOSTS", "must be a list of host names or addresses, without ports and without *, not %q", name)
		}
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" ||
			u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			f.add("BROKER_PUBLIC_URL", "must be an absolute http or https URL without user name, query and fragment")
		}
	}
	if c.SQS != "on" && c.SQS != "off" {
		f.add("BROKER_SQS", "must be on or off, not %q", c.SQS)
	}
	if c.UI != "on" && c.UI != "read-only" && c.UI != "off" {
		f.add("BROKER_UI", "must be on, read-only or off, not %q", c.UI)
	}
	if _, err := ui.ParsePayloads(c.UIPayloads); err != nil {
		f.add("BROKER_UI_PAYLOADS", "%v", err)
	}
	for _, origin := range c.UIFrames {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
			u.Scheme+"://"+u.Host != origin || strings.ContainsAny(origin, ";, *'\"") {
			f.add("BROKER_UI_FRAMES", "must have origins like https://app.example, not %q", origin)
		}
	}
	if strings.ContainsFunc(c.AdminToken, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		f.add("BROKER_ADMIN_TOKEN", "contains a blank or a control character, which a header does not transport unchanged")
	}
}

// checkTokens checks the keys of tokens, and who may send wrong ones.
func (c *config) checkTokens(f *faults) {
	var keys [2][]byte
	for i, s := range []struct{ name, text string }{{"BROKER_TOKEN_KEY", c.TokenKey},
		{"BROKER_TOKEN_KEY_PREVIOUS", c.TokenKeyPrevious}} {
		if s.text == "" {
			continue
		}
		var err error
		if keys[i], err = apitoken.ParseKey(strings.TrimSpace(s.text)); err != nil {
			f.add(s.name, "%v", err)
		}
	}
	switch {
	case c.TokenKeyPrevious == "":
	case c.TokenKey == "" && f.fine("BROKER_TOKEN_KEY"):
		f.add("BROKER_TOKEN_KEY_PREVIOUS", "needs BROKER_TOKEN_KEY, the key that replaces it")
	case keys[0] != nil && bytes.Equal(keys[0], keys[1]):
		f.add("BROKER_TOKEN_KEY_PREVIOUS", "is the same as BROKER_TOKEN_KEY")
	}
	c.tokenKeys, c.sealKeys = apitoken.NewKeys(keys[0], keys[1]), atrest.NewKeys(keys[0], keys[1])
	if !c.showTokens() {
		c.sealKeys = c.sealKeys.Digesting()
	}
	c.checkGateway(f)
	if c.AuthFailures < 0 || c.AuthFailures > 1_000_000 {
		f.add("BROKER_AUTH_FAILURES", "must be from 0 to 1000000, not %d", c.AuthFailures)
	}
	var err error
	if c.proxies, err = forwarded.Parse(c.TrustedProxies); err != nil {
		f.add("BROKER_TRUSTED_PROXIES", "is wrong: %v", err)
	}
}

// checkTimes checks delays, and how long messages are kept.
func (c *config) checkTimes(f *faults) {
	// The delivery timeout comes first: it is the default of two others.
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"BROKER_DELIVERY_TIMEOUT", c.DeliveryTimeout}, {"BROKER_STOP_TIMEOUT", c.StopTimeout}, {"BROKER_DRAIN_TIMEOUT",
		c.DrainTimeout},
		{"BROKER_RATIONAL_DELAY", c.RationalDelay}, {"BROKER_RETRY_MAX_DELAY", c.RetryMaxDelay},
		{"BROKER_NO_WORKER_AFTER", c.NoWorkerAfter}} {
		inherited := t.d == c.DeliveryTimeout && !f.given[t.name] && f.given["BROKER_DELIVERY_TIMEOUT"] &&
			t.name != "BROKER_DELIVERY_TIMEOUT"
		if (t.d <= 0 || t.d > 7*24*time.Hour) && !inherited {
			f.add(t.name, "must be longer than 0 and at most 168h, not %v", t.d)
		}
	}
	if d := c.DrainDelay; d != nil && (*d < 0 || *d > time.Hour) {
		f.add("BROKER_DRAIN_DELAY", "must be from 0s to 1h, not %v", *d)
	}
	least := c.RationalDelay + durable.MinRetention
	for name, d := range map[string]time.Duration{"BROKER_RETENTION": c.Retention,
		"BROKER_DEAD_RETENTION": c.DeadRetention, "BROKER_ATTEMPT_RETENTION": c.AttemptRetention} {
		if d != 0 && d < least && f.fine("BROKER_RATIONAL_DELAY") {
			f.add(name, "must be 0 or at least %v (BROKER_RATIONAL_DELAY + %v), not %v", least, durable.MinRetention, d)
		}
	}
	if d := c.IdempotencyRetention; d < time.Second || d > 365*24*time.Hour {
		f.add("BROKER_IDEMPOTENCY_RETENTION", "must be from 1s to 8760h, not %v", d)
	}
	if d := c.MinScheduleDelay; d < 0 || d > 365*24*time.Hour {
		f.add("BROKER_MIN_SCHEDULE_DELAY", "must be from 0 to 8760h, not %v", d)
	}
	if c.DeadRetention != 0 && c.Retention == 0 && f.fine("BROKER_RETENTION") {
		f.add("BROKER_DEAD_RETENTION", "needs BROKER_RETENTION: a dead letter is removed with its message")
	}
	if c.TimerSlack < 0 || c.TimerSlack > timerslack.Most {
		f.add("BROKER_TIMER_SLACK", "must be from 0s to %v, not %v", timerslack.Most, c.TimerSlack)
	}
}

// checkAttempts checks the retries of a delivery.
func (c *config) checkAttempts(f *faults) {
	if c.MaxRetries < 0 || c.MaxRetries > 10_000 {
		f.add("BROKER_MAX_RETRIES", "must be from 0 to 10000, not %d", c.MaxRetries)
	}
	if len(c.RetryBackoff) > policy.MaxWaits {
		f.add("BROKER_RETRY_BACKOFF", "has %d waits, at most %d are allowed", len(c.RetryBackoff), policy.MaxWaits)
	}
	for _, d := range c.RetryBackoff {
		if d <= 0 {
			f.add("BROKER_RETRY_BACKOFF", "contains %v; every wait must be longer than 0", d)
		}
	}
	if c.TombstoneAfter < 0 || c.TombstoneAfter > 10_000 {
		f.add("BROKER_TOMBSTONE_AFTER", "must be from 0 to 10000, not %d", c.TombstoneAfter)
	}
	if c.TombstoneWindow < time.Second || c.TombstoneWindow > 720*time.Hour {
		f.add("BROKER_TOMBSTONE_WINDOW", "must be from 1s to 720h, not %v", c.TombstoneWindow)
	}
	if err := policy.CheckTTL(c.TTL); err != nil {
		f.add("BROKER_TTL", "%v, not %v", err, c.TTL)
	}
	if c.AdaptivePeriod < 100*time.Millisecond || c.AdaptivePeriod > time.Hour {
		f.add("BROKER_ADAPTIVE_PERIOD", "must be from 100ms to 1h, not %v", c.AdaptivePeriod)
	}
	if !(c.AdaptiveDown > 0 && c.AdaptiveDown < c.AdaptiveSlow && c.AdaptiveSlow < 100) && f.fine("BROKER_ADAPTIVE_DOWN",
		"BROKER_ADAPTIVE_SLOW") {
		f.add("BROKER_ADAPTIVE_DOWN and BROKER_ADAPTIVE_SLOW",
			"must be percentages with 0 < down < slow < 100, not %v and %v", c.AdaptiveDown, c.AdaptiveSlow)
	}
	if c.AdaptiveMax < 2 {
		f.add("BROKER_ADAPTIVE_MAX", "must be at least 2, not %d", c.AdaptiveMax)
	}
	for _, d := range c.policyTexts() {
		var p policy.Policy
		if err := policy.Set(&p, d.field, d.text); err != nil {
			f.add(d.setting, "%v, not %q", err, d.text)
		}
	}
	if !(c.RetryJitter >= 0 && c.RetryJitter <= 1) {
		f.add("BROKER_RETRY_JITTER", "must be from 0 to 1, not %v", c.RetryJitter)
	}
}

// checkBounds checks counts and sizes.
func (c *config) checkBounds(f *faults) {
	for name, n := range map[string]int{"BROKER_QUEUE_WINDOW": c.QueueWindow, "BROKER_PUSH_CONCURRENCY": c.PushConcurrency,
		"BROKER_CONSUMER_CONCURRENCY": c.ConsumerConcurrency} {
		if n < 1 {
			f.add(name, "must be at least 1, not %d", n)
		}
	}
	size, err := quantity.Size(c.BulkMaxSize, maxBulkLimit)
	if c.bulkLimit = int(size); err != nil {
		f.add("BROKER_BULK_MAX_SIZE", "must be a size like 4GiB or 4GB of at most 64GiB, not %q", c.BulkMaxSize)
	}
	if c.ProducerMaxStored != "0" {
		if c.storedLimit, err = quantity.Size(c.ProducerMaxStored, maxStored); err != nil {
			f.add("BROKER_PRODUCER_MAX_STORED", "must be 0, or a size like 10GiB or 10GB of at most 1048576GiB, not %q",
				c.ProducerMaxStored)
		}
	}
	if c.ProducerMaxScheduled < 0 {
		f.add("BROKER_PRODUCER_MAX_SCHEDULED", "must be at least 0, not %d", c.ProducerMaxScheduled)
	}
	if c.BulkFetchTimeout < time.Second {
		f.add("BROKER_BULK_FETCH_TIMEOUT", "must be at least 1s")
	}
	size, err = quantity.Size(c.MaxBody, maxBodyLimit)
	if c.bodyLimit = int(size); err != nil {
		f.add("BROKER_MAX_BODY", "must be a size like 4MiB or 4MB of at most 64MiB, not %q", c.MaxBody)
	}
	if c.journalLimit, err = quantity.Size(c.JournalMaxBytes, maxJournal); err != nil || c.journalLimit < leastJournal {
		f.add("BROKER_JOURNAL_MAX_BYTES", "must be a size like 1GiB or 1GB, from 64KiB to 1024GiB, not %q", c.JournalMaxBytes)
	}
	if d := c.JournalMaxAge; d < time.Second || d > mostJournalAge {
		f.add("BROKER_JOURNAL_MAX_AGE", "must be from 1s to %v, not %v", mostJournalAge, d)
	}
}

// checkConsumers checks where deliveries go, and their headers.
func (c *config) checkConsumers(f *faults) {
	for _, rule := range []struct {
		name, mode string
		allow      []string
	}{{"BROKER_EGRESS", c.Egress, c.EgressAllow}, {"BROKER_FETCH_EGRESS", c.FetchEgress, c.FetchEgressAllow}} {
		if _, err := egress.ParsePolicy(rule.mode, nil); err != nil {
			f.add(rule.name, "is wrong: %v", err)
		}
		for _, block := range rule.allow {
			if _, err := egress.ParsePolicy("", []string{block}); err != nil {
				f.add(rule.name+"_ALLOW", "is wrong: %v", err)
			}
		}
	}
	if strings.ContainsAny(c.UserAgent, "\r\n\x00") {
		f.add("BROKER_USER_AGENT", "contains a control character")
	}
	if !isHeaderName(c.ConsumerTokenHeader) {
		f.add("BROKER_CONSUMER_TOKEN_HEADER", "is not a header name: %q", c.ConsumerTokenHeader)
	} else if metadata.ReservedHeader(c.ConsumerTokenHeader) {
		f.add("BROKER_CONSUMER_TOKEN_HEADER", "cannot be %s, which deliveries use for something else", c.ConsumerTokenHeader)
	}
}

// checkStores checks the addresses of the stores and the endpoints of the fail-safe.
func (c *config) checkStores(f *faults) {
	if c.MySQLDSN != "" {
		if err := durable.CheckDSN(c.MySQLDSN); err != nil {
			f.addStore("BROKER_MYSQL_DSN", "is wrong: %v", err)
		}
	}
	if c.RedisURL != "" {
		if err := redisq.CheckURL(c.RedisURL, c.RedisMaster); err != nil {
			f.addStore("BROKER_REDIS_URL", "is wrong: %v", err)
		}
	}
	c.checkOtherStores(f)
	if c.RedisMaster != "" && c.RedisURL == "" && f.fine("BROKER_REDIS_URL") {
		f.add("BROKER_REDIS_MASTER", "needs BROKER_REDIS_URL")
	}
	if c.RetriggerURL != "" {
		if u, err := url.Parse(c.RetriggerURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			f.add("BROKER_RETRIGGER_URL", "must be an absolute http or https URL")
		}
		if c.AdminToken == "" && f.fine("BROKER_ADMIN_TOKEN") {
			f.add("BROKER_RETRIGGER_URL", "needs BROKER_ADMIN_TOKEN")
		}
	}
}

// checkFolder checks the folder of the embedded store, for the commands that open it.
func (c *config) checkFolder(f *faults) {
	if notFolder := inTheWay(c.DataDir); c.MySQLDSN == "" && notFolder != "" && f.fine("BROKER_MYSQL_DSN") {
		f.addStore("BROKER_DATA_DIR", "cannot be a folder: %s is not a directory", notFolder)
	}
}

// inTheWay returns the part of a path that is there and is no folder, so that none can be made; "":
// nothing.
func inTheWay(path string) string {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		} else if err == nil || path == filepath.Dir(path) {
			return ""
		}
	}
}

// checkLog checks the settings of the log.
func (c *config) checkLog(f *faults) {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) {
		f.add("BROKER_LOG_LEVEL", "must be debug, info, warn or error, not %q", c.LogLevel)
	}
	if !slices.Contains([]string{"", "json", "text"}, c.LogFormat) {
		f.add("BROKER_LOG_FORMAT", "must be json or text, not %q", c.LogFormat)
	}
	var err error
	if c.access, err = api.ParseAccessLog(c.AccessLog); err != nil {
		f.add("BROKER_ACCESS_LOG", "%v", err)
	} else if c.access.On() && slices.Contains([]string{"warn", "error"}, c.LogLevel) {
		f.add("BROKER_ACCESS_LOG", "needs BROKER_LOG_LEVEL=info or debug: the lines of requests are of the level info")
	}
}

func isHeaderName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return s != ""
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// isHostname reports whether s can be the name in a URL: an address, or labels of
// letters, digits, - and _.
func isHostname(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	for _, label := range strings.Split(s, ".") {
		if !isHeaderName(label) { // the same characters
			return false
		}
	}
	return true
}

// maxBodyLimit keeps a message far below the packets of the store.
const maxBodyLimit = 64 << 20

// maxStored is the largest bound of what one producer stores.
const maxStored = 1 << 50

// maxBulkLimit keeps the body of a bulk below what a disk has.
const maxBulkLimit = 64 << 30

// Bounds of the journal. A receipt is known for longer than a message may wait.
const (
	leastJournal, maxJournal = 64 << 10, 1 << 40
	mostJournalAge           = 144 * time.Hour
)
