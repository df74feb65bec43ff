package main

import (
	"net"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/feature/principal"
	"github.com/penstock-broker/penstock/internal/feature/reports"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
)

// A config is every setting of the broker, read from the environment. The doc
// tags are the meanings on the pages docs/settings, which a test keeps equal.
type config struct {
	Listen      string `env:"BROKER_LISTEN" envDefault:"127.0.0.1:8080" doc:"Address of the listener: API, dashboard, metrics and probes, over HTTP/1.1."`
	TLSListen   string `env:"BROKER_TLS_LISTEN" doc:"Address of a listener with TLS, for HTTP/2 and HTTP/1.1: 0.0.0.0:8443. Empty: none."`
	TLSCert     string `env:"BROKER_TLS_CERT" doc:"PEM file with the certificate of that listener, and those between it and its root. Read again when it changes."`
	TLSKey      string `env:"BROKER_TLS_KEY" doc:"PEM file with the private key of the certificate."`
	TLSClientCA string `env:"BROKER_TLS_CLIENT_CA" doc:"PEM file with authorities. Set: that listener refuses clients without a certificate of one of these."`
	Principals  string `env:"BROKER_TLS_PRINCIPALS" doc:"What client certificates open without a token: SUBJECT=SCOPES;..., like CN=orders-service=channel:orders,management:read. Empty: nothing."`
	H2CListen   string `env:"BROKER_H2C_LISTEN" doc:"Address of a listener for HTTP/2 without TLS, with prior knowledge (h2c). Empty: none."`
	MySQLDSN    string `env:"BROKER_MYSQL_DSN" secret:"true" doc:"DSN of MySQL 8 or MariaDB in go-sql-driver form. Empty: embedded SQLite in the data folder."`
	MySQLDSNS   string `env:"BROKER_MYSQL_DSNS" secret:"true" doc:"Further MySQL servers, for channels that name one of them when they are created (store=two): two=DSN,three=DSN. Needs BROKER_MYSQL_DSN, which has the catalogue, and BROKER_REDIS_URL. Empty: none."`
	RedisURL    string `env:"BROKER_REDIS_URL" secret:"true" doc:"redis:// or rediss:// URL; several comma-separated addresses are a Cluster. Empty: embedded."`
	RedisMaster string `env:"BROKER_REDIS_MASTER" doc:"Sentinel master name; the addresses of BROKER_REDIS_URL are then the sentinels."`
	DataDir     string `env:"BROKER_DATA_DIR" envDefault:"./data" doc:"Folder of the embedded store and of the journal."`

	DrainDelay *time.Duration `env:"BROKER_DRAIN_DELAY" default:"3s (on loopback 0s)" doc:"How long a stopping broker keeps serving after /readyz turns 503, so that load balancers notice before it closes its listener."`

	DrainTimeout time.Duration `env:"BROKER_DRAIN_TIMEOUT" default:"the delivery timeout" doc:"How long a stopping broker waits for the answers of consumers, whatever their timeouts are. It cuts what is left; those jobs are sent again."`

	AdminToken       string        `env:"BROKER_ADMIN_TOKEN" secret:"true" doc:"Value of X-Broker-Admin-Token. Empty: admin endpoints refuse all requests, and the broker listens on loopback only. No blanks."`
	OpenManagement   *bool         `env:"BROKER_OPEN_MANAGEMENT" default:"true on loopback without an admin token, else false" doc:"PUT, GET and DELETE of producers, channels, consumers, messages and dead letters need no token."`
	AllowedHosts     []string      `env:"BROKER_ALLOWED_HOSTS" doc:"Further values of Host for which open management answers, besides those of loopback and the listen address. No ports, no patterns."`
	TokenKey         string        `env:"BROKER_TOKEN_KEY" secret:"true" doc:"Key of the digests of API tokens, and of the encryption of tokens, secrets and credentials in the store: base64 of 32 random bytes. Empty: API tokens are stored as SHA-256, the others as they are."`
	TokenKeyPrevious string        `env:"BROKER_TOKEN_KEY_PREVIOUS" secret:"true" doc:"The key before BROKER_TOKEN_KEY, or the one after it: what was made with it is read while it is set."`
	ShowTokens       *bool         `env:"BROKER_SHOW_TOKENS" default:"true on loopback, else false" doc:"GET shows the tokens of producers, channels and consumers. Otherwise only the PUT or rotation that made one does, or the PUT that brought it."`
	AuthFailures     int           `env:"BROKER_AUTH_FAILURES" envDefault:"100" doc:"Wrong tokens of one address within a minute, from which its tokens are refused with 429 for a minute. 0: no limit."`
	GatewaySecret    string        `env:"BROKER_GATEWAY_SECRET" secret:"true" doc:"base64 of 16 bytes or more: each request needs X-Broker-Signature, made with it. Empty: none does."`
	GatewayTolerance time.Duration `env:"BROKER_GATEWAY_TOLERANCE" envDefault:"5m" doc:"How far the time of such a signature may be from that of the broker."`
	GatewayExempt    []string      `env:"BROKER_GATEWAY_EXEMPT" envDefault:"/livez,/readyz,/metrics,/_status" doc:"Beginnings of paths that need no such signature."`
	TrustedProxies   []string      `env:"BROKER_TRUSTED_PROXIES" doc:"Networks (CIDRs) of proxies whose X-Forwarded-For says where a request is from, for that limit and the access log."`

	PublicURL   string `env:"BROKER_PUBLIC_URL" doc:"Address under which people reach the brokers, for links in alerts and portal links: https://broker.example. Empty: alerts have no links, and a portal link has the address of its request."`
	AllowDelete bool   `env:"BROKER_ALLOW_DELETE" envDefault:"false" doc:"The DELETE routes of producers, channels, consumers and dead letters exist. Without it they are 405."`
	SeedFile    string `env:"BROKER_SEED_FILE" doc:"INI file with the initial producers, channels and consumers."`

	DeliveryTimeout time.Duration   `env:"BROKER_DELIVERY_TIMEOUT" envDefault:"30s" doc:"Whole exchange of one push attempt."`
	StopTimeout     time.Duration   `env:"BROKER_STOP_TIMEOUT" default:"the delivery timeout" doc:"A pull job is hidden for stop timeout + rational delay (+ IncrementalTimeout) after it is claimed."`
	RationalDelay   time.Duration   `env:"BROKER_RATIONAL_DELAY" envDefault:"2s" doc:"Age at which the fail-safe steps in."`
	MaxRetries      int             `env:"BROKER_MAX_RETRIES" envDefault:"5" doc:"Retries after the first attempt: 5 means at most 6 attempts."`
	RetryBackoff    []time.Duration `env:"BROKER_RETRY_BACKOFF" envDefault:"5s,30s,60s" doc:"Waits before retry 1, 2, 3; after the list the last one doubles each time."`
	RetryMaxDelay   time.Duration   `env:"BROKER_RETRY_MAX_DELAY" envDefault:"1h" doc:"Longest wait before a retry, and longest hold by Retry-After. A wait that a consumer lists in its backoff is kept, however long."`
	RetryJitter     float64         `env:"BROKER_RETRY_JITTER" envDefault:"0.1" doc:"Fraction of the wait that is added at random; never earlier than configured."`
	TombstoneAfter  int             `env:"BROKER_TOMBSTONE_AFTER" envDefault:"0" doc:"More failed push attempts than this within the tombstone window make a consumer DEAD. 0: never."`
	TombstoneWindow time.Duration   `env:"BROKER_TOMBSTONE_WINDOW" envDefault:"24h" doc:"Sliding window of the tombstone."`
	RetryOn         string          `env:"BROKER_RETRY_ON" envDefault:"all" doc:"Answers that are retried: all, or codes and classes like 5xx,408,429; another one is a dead letter at once."`
	RateLimit       string          `env:"BROKER_RATE_LIMIT" envDefault:"none" doc:"Most attempts of one consumer in any window, like 100/1s, all brokers together; none: no limit."`
	Concurrency     string          `env:"BROKER_CONCURRENCY" envDefault:"none" doc:"Most attempts of one consumer in flight, all brokers together, or none."`
	RetryShare      string          `env:"BROKER_RETRY_SHARE" envDefault:"25" doc:"Percent of a consumer's slots and rate for attempts after the first, while first attempts wait. 100: priority alone decides."`
	Adaptive        string          `env:"BROKER_ADAPTIVE" envDefault:"false" doc:"Whether consumers are slowed down while their attempts fail."`
	AdaptivePeriod  time.Duration   `env:"BROKER_ADAPTIVE_PERIOD" envDefault:"30s" doc:"Period over which the attempts of an adaptive consumer are counted."`
	AdaptiveDown    float64         `env:"BROKER_ADAPTIVE_DOWN" envDefault:"5" doc:"Percent of failures in a period above which an adaptive consumer is slowed down by a fifth. It gets faster below a fifth of that."`
	AdaptiveSlow    float64         `env:"BROKER_ADAPTIVE_SLOW" envDefault:"50" doc:"Percent of failures in a period above which it gets one attempt a second; where all of these fail, one a minute."`
	AdaptiveMax     int             `env:"BROKER_ADAPTIVE_MAX" envDefault:"1000" doc:"Attempts in a second at which an adaptive consumer has recovered: nothing is held back any more."`
	Ordered         string          `env:"BROKER_ORDERED" envDefault:"false" doc:"Whether messages with the same ordering key are delivered one at a time."`
	OnBlocked       string          `env:"BROKER_ON_BLOCKED" envDefault:"block" doc:"What becomes of the messages of an ordering key behind a dead letter: block, skip or dead-letter-key."`
	SigningOverlap  string          `env:"BROKER_SIGNING_OVERLAP" envDefault:"24h" doc:"How long the signing secret before the present one signs, too."`
	Reaper          bool            `env:"BROKER_REAPER" envDefault:"true" doc:"Whether the fail-safe runs in this process. At least one process needs it."`
	RetriggerURL    string          `env:"BROKER_RETRIGGER_URL" doc:"Empty: the fail-safe works in process. Set: it calls the re-trigger endpoints at this load-balanced URL with the admin token."`
	NoWorkerAfter   time.Duration   `env:"BROKER_NO_WORKER_AFTER" envDefault:"60s" doc:"How long due jobs of a pull consumer wait without a sign of a worker until why says no_worker."`
	QueueWindow     int             `env:"BROKER_QUEUE_WINDOW" default:"100000 (embedded 2000)" doc:"Jobs of one consumer kept in Redis; the rest of its backlog waits in the store."`

	TTL              time.Duration `env:"BROKER_TTL" envDefault:"0" doc:"Age at which a job is a dead letter, whatever its attempts, where its consumer sets no ttl. 0: never."`
	DLQ              string        `env:"BROKER_DLQ" envDefault:"keep" doc:"What becomes of the dead letters of a consumer without dlq: keep, redrive, forward:CHANNEL or expire:DURATION."`
	Retention        time.Duration `env:"BROKER_RETENTION" envDefault:"720h" doc:"Age at which a message is removed whose jobs are all over. 0: never."`
	DeadRetention    time.Duration `env:"BROKER_DEAD_RETENTION" envDefault:"0" doc:"How long a dead letter keeps its message; both are removed then. 0: for ever."`
	AttemptRetention time.Duration `env:"BROKER_ATTEMPT_RETENTION" envDefault:"0" doc:"How long a failed attempt of a job that is over is kept, where its channel sets no attemptRetention. 0: as long as its message."`
	ArchiveDir       string        `env:"BROKER_ARCHIVE_DIR" doc:"Folder into which messages are written before retention removes them. Empty: they are removed without."`

	ArchiveEndpoint  string `env:"BROKER_ARCHIVE_S3_ENDPOINT" doc:"URL of an S3-compatible store into which they are written in place of a folder: https://s3.example.com. Empty: none."`
	ArchiveBucket    string `env:"BROKER_ARCHIVE_S3_BUCKET" doc:"Bucket of the archive. It must exist."`
	ArchivePrefix    string `env:"BROKER_ARCHIVE_S3_PREFIX" doc:"What the keys of the archive begin with, without slashes at its ends: penstock/archive."`
	ArchiveRegion    string `env:"BROKER_ARCHIVE_S3_REGION" envDefault:"us-east-1" doc:"Region of the bucket, which the signatures of requests have."`
	ArchiveAccessKey string `env:"BROKER_ARCHIVE_S3_ACCESS_KEY" secret:"true" doc:"Access key of the store. Empty, with the next one: those of AWS_ACCESS_KEY_ID and its like, or of the role of the machine or pod."`
	ArchiveSecretKey string `env:"BROKER_ARCHIVE_S3_SECRET_KEY" secret:"true" doc:"Secret key that belongs to the access key."`
	ArchivePathStyle bool   `env:"BROKER_ARCHIVE_S3_PATH_STYLE" envDefault:"true" doc:"Whether the bucket stands in the path. false: in the host name, as buckets of AWS may need it."`
	ArchiveHTTP      bool   `env:"BROKER_ARCHIVE_S3_ALLOW_HTTP" envDefault:"false" doc:"Whether the endpoint may have http where it is not on loopback. What is archived can then be read on the way."`
	ArchiveTrailers  bool   `env:"BROKER_ARCHIVE_S3_TRAILERS" envDefault:"false" doc:"Whether uploads have a CRC32C as a trailer in place of Content-MD5. Some stores refuse trailers."`

	IdempotencyRetention time.Duration `env:"BROKER_IDEMPOTENCY_RETENTION" envDefault:"24h" doc:"How long an Idempotency-Key is kept."`

	MinScheduleDelay time.Duration `env:"BROKER_MIN_SCHEDULE_DELAY" envDefault:"0" doc:"How far ahead a scheduled message must be, at least."`

	ProducerMaxStored    string `env:"BROKER_PRODUCER_MAX_STORED" envDefault:"0" doc:"Most bytes that a producer may store which sets no maxStoredBytes, like 10GiB; beyond it publishes are 429. 0: no bound."`
	ProducerMaxScheduled int    `env:"BROKER_PRODUCER_MAX_SCHEDULED" envDefault:"0" doc:"Most scheduled messages of a producer that wait, where it sets no maxScheduled. 0: no bound."`

	BulkMaxSize      string        `env:"BROKER_BULK_MAX_SIZE" envDefault:"4GiB" doc:"Largest body or file of a bulk."`
	BulkFetchTimeout time.Duration `env:"BROKER_BULK_FETCH_TIMEOUT" envDefault:"10m" doc:"Time in which the file of a bulk must arrive, for each try. A fetch is tried again as a delivery: BROKER_MAX_RETRIES, BROKER_RETRY_BACKOFF."`
	JournalMaxBytes  string        `env:"BROKER_JOURNAL_MAX_BYTES" envDefault:"1GiB" doc:"Most bytes in the journal of channels with ack=journal. Beyond it publishes that the store does not take in time are 503."`
	JournalMaxAge    time.Duration `env:"BROKER_JOURNAL_MAX_AGE" envDefault:"24h" doc:"Longest wait of a message in the journal. Beyond it the journal takes no others, which are 503."`

	AlertSMTPURL       string        `env:"BROKER_ALERT_SMTP_URL" secret:"true" doc:"Mail server of mailto: callbacks and of alerts: smtp://user:password@host:port?tls=starttls; tls is starttls, implicit or none. Empty: no mails."`
	AlertFrom          string        `env:"BROKER_ALERT_FROM" doc:"Sender of the mails, a mail address."`
	AlertTo            []string      `env:"BROKER_ALERT_TO" doc:"Receivers of mails about alerts, at most 50 mail addresses: the consumer ~mail of the channel ~alerts. Empty: alerts are not mailed, and a start deletes the consumer."`
	MailDomains        []string      `env:"BROKER_MAIL_DOMAINS" doc:"Domains that the addresses of mailto: callbacks may have, each with those below it. Empty: any."`
	AlertWebhookURL    string        `env:"BROKER_ALERT_WEBHOOK_URL" secret:"true" doc:"URL that gets a POST with the JSON of each alert, as the consumer ~webhook of the channel ~alerts. Redirects are failures. Empty: no webhook, and a start deletes the consumer."`
	AlertWebhookSecret string        `env:"BROKER_ALERT_WEBHOOK_SECRET" secret:"true" doc:"Signs the requests to the alert webhook as Standard Webhooks: whsec_ and base64 of 24 to 64 bytes. Empty: not signed."`
	AlertDLQGrowth     int           `env:"BROKER_ALERT_DLQ_GROWTH" envDefault:"100" doc:"Jobs of one consumer that become dead letters within the window below, from which there is an alert. 0: never."`
	AlertDLQWindow     time.Duration `env:"BROKER_ALERT_DLQ_WINDOW" envDefault:"10m" doc:"Window of BROKER_ALERT_DLQ_GROWTH. After a window without a new dead letter the next growth is another alert."`

	MaxBody             string   `env:"BROKER_MAX_BODY" envDefault:"4MiB" doc:"Largest request body; a larger one is 413."`
	PushConcurrency     int      `env:"BROKER_PUSH_CONCURRENCY" envDefault:"512" doc:"Push requests in flight, this process."`
	ConsumerConcurrency int      `env:"BROKER_CONSUMER_CONCURRENCY" envDefault:"64" doc:"Push requests in flight, one consumer."`
	Egress              string   `env:"BROKER_EGRESS" envDefault:"private" doc:"Where callbacks may be. private: anywhere but link-local and cloud-metadata addresses; public: public addresses only."`
	EgressAllow         []string `env:"BROKER_EGRESS_ALLOW" doc:"CIDRs that are allowed with any value of BROKER_EGRESS."`
	FetchEgress         string   `env:"BROKER_FETCH_EGRESS" envDefault:"public" doc:"The same rule for URLs that producers and consumers name: the file of a bulk, the Location of a 202. public or private."`
	FetchEgressAllow    []string `env:"BROKER_FETCH_EGRESS_ALLOW" doc:"CIDRs that are allowed with any value of BROKER_FETCH_EGRESS. Those of BROKER_EGRESS_ALLOW do not count there."`
	UserAgent           string   `env:"BROKER_USER_AGENT" default:"Penstock/<version>" doc:"User-Agent of deliveries and of the other requests of the broker. Open management refuses requests that have it."`
	ConsumerTokenHeader string   `env:"BROKER_CONSUMER_TOKEN_HEADER" envDefault:"X-Broker-Consumer-Token" doc:"Header of deliveries that contains the consumer's token; not a header with another meaning in deliveries."`

	TimerSlack time.Duration `env:"BROKER_TIMER_SLACK" envDefault:"500us" doc:"Linux: how late timers of this process may be, so that the machine wakes less often. The program restarts itself in the same process to set it. 0: the default of the system."`

	LogLevel      string        `env:"BROKER_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`
	LogFormat     string        `env:"BROKER_LOG_FORMAT" default:"json (text on a terminal)" doc:"json or text."`
	LogFile       string        `env:"BROKER_LOG_FILE" default:"stderr" doc:"File to log to; rotated at 100 MiB, 5 old ones are kept for 28 days."`
	TraceFollow   time.Duration `env:"BROKER_TRACE_FOLLOW" envDefault:"60s" doc:"An attempt that begins within it of the publish is a child of the publish in its trace; a later one is a new trace with a link."`
	TraceFailures bool          `env:"BROKER_TRACE_FAILURES" envDefault:"false" doc:"Whether failed attempts are always recorded as spans, also those of messages that are not sampled."`
	TraceURL      string        `env:"BROKER_TRACE_URL" doc:"Address of a trace for people, with {traceID} in it: timelines have links to it. Empty: they have the IDs only."`

	SQS string `env:"BROKER_SQS" envDefault:"on" doc:"on or off: whether the broker answers the requests of SQS clients, at / and at each QueueUrl."`

	UI string `env:"BROKER_UI" envDefault:"on" doc:"on, read-only (no actions) or off: whether the dashboard is at /ui. It shows what management shows and does what management may, to whom management is open or who logs in with the admin token."`

	UIPayloads string `env:"BROKER_UI_PAYLOADS" envDefault:"show" doc:"What the dashboard shows of payloads: show, keys (names and kinds of JSON fields) or hide; then fields of JSON that are never shown: show,$.card.*,$.items.*.price."`

	UIBench string `env:"BROKER_UI_BENCH" doc:"Folder of reports of bench run --html that the dashboard shows at /ui/bench. Empty: none."`

	UIFrames []string `env:"BROKER_UI_FRAMES" doc:"Origins whose pages may have the pages of a portal link in a frame, separated by commas: https://app.example."`

	AccessLog string `env:"BROKER_ACCESS_LOG" envDefault:"off" doc:"Requests that have a line in the log: off, errors (answers of 400 and above), all, or 1/100 (one in a hundred, at random)."`

	bodyLimit    int
	bulkLimit    int
	journalLimit int64
	storedLimit  int64
	access       api.AccessLog
	tokenKeys    apitoken.Keys
	sealKeys     *atrest.Keys
	archiveStore *archive.S3 // nil: none
	principals   *principal.Map
	proxies      forwarded.Trusted
	gatewayKey   []byte // nil: requests need no signature
	tracing      tracing.Settings
	otel         map[string]string // the variables OTEL_*
	reports      reports.Settings
	passedOver   []string          // what the log says of variables that count for nothing
	stores       map[string]string // DSNs of other stores by name
	storeName    string            // of these settings; "": the first store
	serviceLinks []string          // names of the environment that were passed over
	misnamed     []string          // the same, of those that look like settings without their prefix
	given        map[string]bool   // settings of the environment that have a value
	seed         *seedSource       // nil: there is no seed file
}

// derive fills the defaults that depend on other settings.
func (c *config) derive() {
	if c.StopTimeout == 0 {
		c.StopTimeout = c.DeliveryTimeout
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = c.DeliveryTimeout
	}
	if c.QueueWindow == 0 {
		c.QueueWindow = 100_000
		if c.RedisURL == "" {
			c.QueueWindow = 2000
		}
	}
	for i, name := range c.AllowedHosts {
		c.AllowedHosts[i] = strings.TrimSpace(name)
	}
	if c.UserAgent == "" {
		c.UserAgent = egress.Product + "/" + version
	}
}

// allowedHosts are the names, besides those of loopback, under which management is open.
func (c *config) allowedHosts() []string {
	var names []string
	for _, address := range c.listens() {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
			names = append(names, host)
		}
	}
	return append(names, c.AllowedHosts...)
}

// onLoopback reports whether only this machine reaches the listeners.
func (c *config) onLoopback() bool {
	for _, address := range c.listens() {
		if host, _, err := net.SplitHostPort(address); err != nil || !isLoopback(host) {
			return false
		}
	}
	return true
}

// openManagement returns the setting or its default. With an admin token management is closed by
// default.
func (c *config) openManagement() bool {
	if c.OpenManagement != nil {
		return *c.OpenManagement
	}
	return c.onLoopback() && c.AdminToken == ""
}

// showTokens returns the setting or its default.
func (c *config) showTokens() bool {
	if c.ShowTokens != nil {
		return *c.ShowTokens
	}
	return c.onLoopback()
}

// policy returns the delivery policy of consumers without settings of their own.
func (c *config) policy() policy.Policy {
	own := slices.Clone(c.RetryBackoff)
	for i := range own { // a consumer's own list has no bound
		own[i] = min(own[i], c.RetryMaxDelay)
	}
	p := policy.Policy{
		TTL:     c.TTL,
		Timeout: c.DeliveryTimeout, Lease: c.visible(), MaxRetries: c.MaxRetries, Backoff: policy.Waits(own...),
		MaxDelay: c.RetryMaxDelay, Jitter: c.RetryJitter,
		TombstoneAfter: c.TombstoneAfter, TombstoneWindow: c.TombstoneWindow,
	}
	for _, d := range c.policyTexts() {
		_ = policy.Set(&p, d.field, d.text) // checked
	}
	return p
}

// visible returns the length of a lease of a pull consumer without a timeout of its own.
func (c *config) visible() time.Duration { return c.StopTimeout + c.RationalDelay }

// A policyText is a setting that is the default of a field of policies, in the field's own form.
type policyText struct{ setting, field, text string }

func (c *config) policyTexts() []policyText {
	return []policyText{
		{"BROKER_RETRY_ON", "retryOn", c.RetryOn},
		{"BROKER_RATE_LIMIT", "rateLimit", c.RateLimit},
		{"BROKER_CONCURRENCY", "concurrency", c.Concurrency},
		{"BROKER_RETRY_SHARE", "retryShare", c.RetryShare},
		{"BROKER_ADAPTIVE", "adaptive", c.Adaptive},
		{"BROKER_ORDERED", "ordered", c.Ordered},
		{"BROKER_ON_BLOCKED", "onBlocked", c.OnBlocked},
		{"BROKER_SIGNING_OVERLAP", "signingOverlap", c.SigningOverlap},
		{"BROKER_DLQ", "dlq", c.DLQ},
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
