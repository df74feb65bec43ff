package main

import (
	"net"
	"time"

	"github.com/penstock-broker/penstock/internal/policy"
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
