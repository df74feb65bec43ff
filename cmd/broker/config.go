package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caarlos0/env/v10"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/timerslack"
)

// A config is every setting of the broker, read from the environment. The doc
// tags are the meanings in docs/configuration.md, which a test keeps equal.
type config struct {
	Listen      string `env:"BROKER_LISTEN" envDefault:"127.0.0.1:8080" doc:"Address of the one listener: API, metrics and probes."`
	MySQLDSN    string `env:"BROKER_MYSQL_DSN" secret:"true" doc:"DSN of MySQL 8 or MariaDB in go-sql-driver form. Empty: embedded SQLite in the data folder."`
	RedisURL    string `env:"BROKER_REDIS_URL" secret:"true" doc:"redis:// or rediss:// URL; several comma-separated addresses are a Cluster. Empty: embedded."`
	RedisMaster string `env:"BROKER_REDIS_MASTER" doc:"Sentinel master name; the addresses of BROKER_REDIS_URL are then the sentinels."`
	DataDir     string `env:"BROKER_DATA_DIR" envDefault:"./data" doc:"Folder of the embedded store."`

	DrainDelay *time.Duration `env:"BROKER_DRAIN_DELAY" default:"3s (on loopback 0s)" doc:"How long a stopping broker keeps serving after /readyz turns 503, so that load balancers notice before it closes its listener."`

	AdminToken     string   `env:"BROKER_ADMIN_TOKEN" secret:"true" doc:"Value of X-Broker-Admin-Token. Empty: admin endpoints refuse all requests, and the broker listens on loopback only. No blanks."`
	OpenManagement *bool    `env:"BROKER_OPEN_MANAGEMENT" default:"true on loopback without an admin token, else false" doc:"PUT and GET of producers, channels, consumers, messages and dead letters need no token."`
	AllowedHosts   []string `env:"BROKER_ALLOWED_HOSTS" doc:"Further values of Host for which open management answers, besides those of loopback and the listen address. No ports, no patterns."`
	SeedFile       string   `env:"BROKER_SEED_FILE" doc:"INI file with the initial producers, channels and consumers."`

	DeliveryTimeout time.Duration   `env:"BROKER_DELIVERY_TIMEOUT" envDefault:"30s" doc:"Whole exchange of one push attempt."`
	StopTimeout     time.Duration   `env:"BROKER_STOP_TIMEOUT" default:"the delivery timeout" doc:"A pull job is hidden for stop timeout + rational delay (+ IncrementalTimeout) after it is claimed."`
	RationalDelay   time.Duration   `env:"BROKER_RATIONAL_DELAY" envDefault:"2s" doc:"Age at which the fail-safe steps in."`
	MaxRetries      int             `env:"BROKER_MAX_RETRIES" envDefault:"5" doc:"Retries after the first attempt: 5 means at most 6 attempts."`
	RetryBackoff    []time.Duration `env:"BROKER_RETRY_BACKOFF" envDefault:"5s,30s,60s" doc:"Waits before retry 1, 2, 3; after the list the last one doubles each time."`
	RetryMaxDelay   time.Duration   `env:"BROKER_RETRY_MAX_DELAY" envDefault:"1h" doc:"Longest wait before a retry."`
	RetryJitter     float64         `env:"BROKER_RETRY_JITTER" envDefault:"0.1" doc:"Fraction of the wait that is added at random; never earlier than configured."`
	Reaper          bool            `env:"BROKER_REAPER" envDefault:"true" doc:"Whether the fail-safe runs in this process. At least one process needs it."`
	RetriggerURL    string          `env:"BROKER_RETRIGGER_URL" doc:"Empty: the fail-safe works in process. Set: it calls the re-trigger endpoints at this load-balanced URL with the admin token."`
	QueueWindow     int             `env:"BROKER_QUEUE_WINDOW" default:"100000 (embedded 2000)" doc:"Jobs of one consumer kept in Redis; the rest of its backlog waits in the store."`

	Retention     time.Duration `env:"BROKER_RETENTION" envDefault:"720h" doc:"Age at which a message is removed whose jobs are all over. 0: never."`
	DeadRetention time.Duration `env:"BROKER_DEAD_RETENTION" envDefault:"0" doc:"How long a dead letter keeps its message; both are removed then. 0: for ever."`

	MaxBody             string   `env:"BROKER_MAX_BODY" envDefault:"4MiB" doc:"Largest request body; a larger one is 413."`
	PushConcurrency     int      `env:"BROKER_PUSH_CONCURRENCY" envDefault:"512" doc:"Push requests in flight, this process."`
	ConsumerConcurrency int      `env:"BROKER_CONSUMER_CONCURRENCY" envDefault:"64" doc:"Push requests in flight, one consumer."`
	Egress              string   `env:"BROKER_EGRESS" envDefault:"private" doc:"Where callbacks may be. private: anywhere but link-local and cloud-metadata addresses; public: public addresses only."`
	EgressAllow         []string `env:"BROKER_EGRESS_ALLOW" doc:"CIDRs that are allowed with any value of BROKER_EGRESS."`
	UserAgent           string   `env:"BROKER_USER_AGENT" default:"Penstock/<version>" doc:"User-Agent of deliveries."`
	ConsumerTokenHeader string   `env:"BROKER_CONSUMER_TOKEN_HEADER" envDefault:"X-Broker-Consumer-Token" doc:"Header of deliveries that contains the consumer's token; not a header with another meaning in deliveries."`

	TimerSlack time.Duration `env:"BROKER_TIMER_SLACK" envDefault:"500us" doc:"Linux: how late timers of this process may be, so that the machine wakes less often. The program restarts itself in the same process to set it. 0: the default of the system."`

	LogLevel  string `env:"BROKER_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`
	LogFormat string `env:"BROKER_LOG_FORMAT" default:"json (text on a terminal)" doc:"json or text."`
	LogFile   string `env:"BROKER_LOG_FILE" default:"stderr" doc:"File to log to; rotated at 100 MiB, 5 old ones are kept for 28 days."`

	bodyLimit    int
	serviceLinks []string // names of the environment that were passed over
}

// fileSuffix turns the name of a variable into that of a file with the value, as mounted secrets
// need it.
const fileSuffix = "_FILE"

// readConfig reads and checks the settings. Its errors name variables and never
// show the value of a secret.
func readConfig(environ []string) (config, error) {
	var c config
	known, secret := variables()
	values := map[string]string{}
	var errs []error
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "BROKER_") {
			continue
		}
		if base, ok := strings.CutSuffix(name, fileSuffix); ok && known[base] && !known[name] {
			content, err := readSetting(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				continue
			}
			if slices.ContainsFunc(environ, func(l string) bool { return strings.HasPrefix(l, base+"=") && l != base+"=" }) {
				errs = append(errs, fmt.Errorf("%s and %s are both set", base, name))
			}
			values[base] = content
			continue
		}
		if isServiceLink(name, value) {
			c.serviceLinks = append(c.serviceLinks, name)
			continue
		}
		if !known[name] {
			errs = append(errs, fmt.Errorf("%s is no setting of this broker%s", name, suggestion(name, known)))
			continue
		}
		if value != "" { // an empty variable counts as absent
			values[name] = value
		}
	}
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	if err := env.ParseWithOptions(&c, env.Options{Environment: values}); err != nil {
		return c, describe(err, values, secret)
	}
	c.derive()
	return c, c.check()
}

// maxSettingBytes bounds a file with the value of a setting.
const maxSettingBytes = 64 << 10

// readSetting returns the value in a file, without its final line break. A file without a value is
// an error, unlike an empty variable: a mounted secret that was not filled must neither open
// management nor select an embedded store.
func readSetting(path string) (string, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", errors.New("the file cannot be read")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSettingBytes+1))
	switch value := strings.TrimRight(string(content), "\r\n"); {
	case err != nil:
		return "", errors.New("the file cannot be read")
	case len(content) > maxSettingBytes:
		return "", fmt.Errorf("the file has more than %d bytes, too many for a setting", maxSettingBytes)
	case strings.TrimSpace(value) == "":
		return "", errors.New("the file is empty")
	default:
		return value, nil
	}
}

// variables returns the names of all settings, and which of them are secret.
func variables() (known, secret map[string]bool) {
	known, secret = map[string]bool{}, map[string]bool{}
	for f := range fields() {
		known[f.Tag.Get("env")] = true
		secret[f.Tag.Get("env")] = f.Tag.Get("secret") == "true"
	}
	return known, secret
}

func fields() func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		t := reflect.TypeFor[config]()
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("env") != "" && !yield(f) {
				return
			}
		}
	}
}

// suggestion names the setting that was probably meant.
func suggestion(name string, known map[string]bool) string {
	for k := range known {
		if strings.ReplaceAll(k, "_", "") == strings.ReplaceAll(strings.ToUpper(name), "_", "") || strings.HasPrefix(k, name) && len(k)-len(name) < 8 {
			return "; did you mean " + k + "?"
		}
	}
	return ""
}

// describe turns an error of the library into one with the name of the variable and the value,
// unless the value is secret.
func describe(err error, values map[string]string, secret map[string]bool) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return errors.New("the settings cannot be read")
	}
	var errs []error
	for _, one := range all.Errors {
		var p env.ParseError
		if !errors.As(one, &p) {
			errs = append(errs, one)
			continue
		}
		for f := range fields() {
			if f.Name != p.Name {
				continue
			}
			name := f.Tag.Get("env")
			if secret[name] {
				errs = append(errs, fmt.Errorf("%s has a value of the wrong form", name))
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %q is not a %s", name, values[name], form(f.Type)))
		}
	}
	return errors.Join(errs...)
}

func form(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration like 30s or 1m30s"
	case t == reflect.TypeFor[[]time.Duration]():
		return "comma-separated list of durations like 5s,30s,60s"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Pointer:
		return form(t.Elem())
	case t.Kind() == reflect.Bool:
		return "truth value (true or false)"
	}
	return t.String()
}

// derive fills the defaults that depend on other settings.
func (c *config) derive() {
	if c.StopTimeout == 0 {
		c.StopTimeout = c.DeliveryTimeout
	}
	if c.QueueWindow == 0 {
		c.QueueWindow = 100_000
		if c.RedisURL == "" {
			c.QueueWindow = 2000
		}
	}
	if c.UserAgent == "" {
		c.UserAgent = "Penstock/" + version
	}
}

func (c *config) check() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf(name+" "+format, args...))
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		bad("BROKER_LISTEN", "must be host:port, not %q", c.Listen)
	} else if c.AdminToken == "" && !isLoopback(host) {
		bad("BROKER_LISTEN", "%q is reachable from other machines, which needs BROKER_ADMIN_TOKEN; without one the broker listens on loopback only", c.Listen)
	}
	for _, name := range c.AllowedHosts {
		if !isHostname(name) {
			bad("BROKER_ALLOWED_HOSTS", "must be a list of host names or addresses, without ports and without *, not %q", name)
		}
	}
	if strings.ContainsFunc(c.AdminToken, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		bad("BROKER_ADMIN_TOKEN", "contains a blank or a control character, which a header does not transport unchanged")
	}
	for name, d := range map[string]time.Duration{"BROKER_DELIVERY_TIMEOUT": c.DeliveryTimeout, "BROKER_STOP_TIMEOUT": c.StopTimeout,
		"BROKER_RATIONAL_DELAY": c.RationalDelay, "BROKER_RETRY_MAX_DELAY": c.RetryMaxDelay} {
		if d <= 0 || d > 7*24*time.Hour {
			bad(name, "must be longer than 0 and at most 168h, not %v", d)
		}
	}
	if d := c.DrainDelay; d != nil && (*d < 0 || *d > time.Hour) {
		bad("BROKER_DRAIN_DELAY", "must be from 0s to 1h, not %v", *d)
	}
	least := c.RationalDelay + durable.MinRetention
	for name, d := range map[string]time.Duration{"BROKER_RETENTION": c.Retention, "BROKER_DEAD_RETENTION": c.DeadRetention} {
		if d != 0 && d < least {
			bad(name, "must be 0 or at least %v (BROKER_RATIONAL_DELAY + %v), not %v", least, durable.MinRetention, d)
		}
	}
	if c.DeadRetention != 0 && c.Retention == 0 {
		bad("BROKER_DEAD_RETENTION", "needs BROKER_RETENTION: a dead letter is removed with its message")
	}
	if len(c.RetryBackoff) > policy.MaxWaits {
		bad("BROKER_RETRY_BACKOFF", "has %d waits, at most %d are allowed", len(c.RetryBackoff), policy.MaxWaits)
	}
	for _, d := range c.RetryBackoff {
		if d <= 0 {
			bad("BROKER_RETRY_BACKOFF", "contains %v; every wait must be longer than 0", d)
		}
	}
	for name, n := range map[string]int{"BROKER_QUEUE_WINDOW": c.QueueWindow, "BROKER_PUSH_CONCURRENCY": c.PushConcurrency, "BROKER_CONSUMER_CONCURRENCY": c.ConsumerConcurrency} {
		if n < 1 {
			bad(name, "must be at least 1, not %d", n)
		}
	}
	if c.TimerSlack < 0 || c.TimerSlack > timerslack.Most {
		bad("BROKER_TIMER_SLACK", "must be from 0s to %v, not %v", timerslack.Most, c.TimerSlack)
	}
	if c.MaxRetries < 0 || c.MaxRetries > 10_000 {
		bad("BROKER_MAX_RETRIES", "must be from 0 to 10000, not %d", c.MaxRetries)
	}
	if !(c.RetryJitter >= 0 && c.RetryJitter <= 1) {
		bad("BROKER_RETRY_JITTER", "must be from 0 to 1, not %v", c.RetryJitter)
	}
	if c.bodyLimit, err = parseSize(c.MaxBody); err != nil {
		bad("BROKER_MAX_BODY", "must be a size like 4MiB of at most 64MiB, not %q", c.MaxBody)
	}
	if _, err := egress.ParsePolicy(c.Egress, c.EgressAllow); err != nil {
		bad("BROKER_EGRESS or BROKER_EGRESS_ALLOW", "is wrong: %v", err)
	}
	if c.RetriggerURL != "" {
		if u, err := url.Parse(c.RetriggerURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			bad("BROKER_RETRIGGER_URL", "must be an absolute http or https URL")
		} else if c.AdminToken == "" {
			bad("BROKER_RETRIGGER_URL", "needs BROKER_ADMIN_TOKEN")
		}
	}
	if c.RedisMaster != "" && c.RedisURL == "" {
		bad("BROKER_REDIS_MASTER", "needs BROKER_REDIS_URL")
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) {
		bad("BROKER_LOG_LEVEL", "must be debug, info, warn or error, not %q", c.LogLevel)
	}
	if !slices.Contains([]string{"", "json", "text"}, c.LogFormat) {
		bad("BROKER_LOG_FORMAT", "must be json or text, not %q", c.LogFormat)
	}
	if strings.ContainsAny(c.UserAgent, "\r\n\x00") {
		bad("BROKER_USER_AGENT", "contains a control character")
	}
	if !isHeaderName(c.ConsumerTokenHeader) {
		bad("BROKER_CONSUMER_TOKEN_HEADER", "is not a header name: %q", c.ConsumerTokenHeader)
	} else if metadata.ReservedHeader(c.ConsumerTokenHeader) {
		bad("BROKER_CONSUMER_TOKEN_HEADER", "cannot be %s, which deliveries use for something else", c.ConsumerTokenHeader)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
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

// allowedHosts are the names, besides those of loopback, under which management is open.
func (c *config) allowedHosts() []string {
	host, _, err := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return c.AllowedHosts
	}
	return append([]string{host}, c.AllowedHosts...)
}

// onLoopback reports whether only this machine reaches the listener.
func (c *config) onLoopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// openManagement returns the setting or its default. With an admin token management is closed by
// default.
func (c *config) openManagement() bool {
	if c.OpenManagement != nil {
		return *c.OpenManagement
	}
	return c.onLoopback() && c.AdminToken == ""
}

// policy returns the delivery policy of consumers without settings of their own.
func (c *config) policy() policy.Policy {
	return policy.Policy{
		Timeout: c.DeliveryTimeout, MaxRetries: c.MaxRetries, Backoff: policy.Waits(c.RetryBackoff...),
		MaxDelay: c.RetryMaxDelay, Jitter: c.RetryJitter,
	}
}

// drainDelay returns the setting or its default. Most load balancers check every second or two, and
// a broker on loopback rarely has one.
func (c *config) drainDelay() time.Duration {
	switch {
	case c.DrainDelay != nil:
		return *c.DrainDelay
	case c.onLoopback():
		return 0
	}
	return 3 * time.Second
}

// maxBody is BROKER_MAX_BODY in bytes.
func (c *config) maxBody() int { return c.bodyLimit }

// maxBodyLimit keeps a message far below the packets of the store.
const maxBodyLimit = 64 << 20

// parseSize reads bytes, KiB, MiB or GiB.
func parseSize(s string) (int, error) {
	number, factor := s, 1
	for suffix, f := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, factor = n, f
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil || n < 1 || n > maxBodyLimit/factor {
		return 0, errors.New("not a size")
	}
	return n * factor, nil
}
