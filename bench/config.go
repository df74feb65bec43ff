package bench

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Config has the settings of one run, as given by the flags. It is part of the report.
type Config struct {
	URL        string `json:",omitempty"` // of a running broker; empty: the run starts one
	Own        bool   `json:",omitempty"` // the URL need not be loopback
	AdminToken string `json:"-"`
	MySQL      string `json:"-"` // DSN for a started broker; empty: embedded
	Redis      string `json:"-"`
	Binary     string `json:"-"`
	BrokerEnv  list   `json:",omitempty"` // NAME=VALUE for a started broker

	Connections int
	Rate        float64 // messages per second, open loop; 0: closed loop
	Payload     int     // bytes
	PayloadFrom string  `json:",omitempty"`
	// PayloadField names the arrays of a JSON file that contain the bodies. If it is empty, each
	// file is a body.
	PayloadField string `json:",omitempty"`
	ContentType  string
	Priority     string
	Channels     int
	Batch        int  // messages per POST to the batch route; 1: single route
	MessageIDs   bool // the producer names its messages, and may repeat uncertain posts

	PushConsumers int  // per channel
	Policy        list `json:",omitempty"` // field=value of each consumer
	Channel       list `json:",omitempty"` // field=value of each channel
	Keys          int  `json:",omitempty"` // ordering keys; 0: messages have none
	Sink          string
	PullWorkers   int // per channel, all of one consumer
	PullBatch     int // jobs per claim at the batch routes; 1: single routes
	// ConsumeAfter lets pull workers begin when publishing has ended: a backlog,
	// then its drain.
	ConsumeAfter bool `json:",omitempty"`

	Warmup   time.Duration
	Duration time.Duration
	Messages uint64 // ends the run where Duration is 0
	Passes   int    `json:",omitempty"` // sends every body of PayloadFrom this often
	// MaxBacklog pauses a closed loop while more deliveries than this are owed; 0: never.
	MaxBacklog int64
	Drain      time.Duration // without any delivery, until the run gives up on the rest
	Quiet      time.Duration // without any delivery, after everything owed has arrived
	Timeout    time.Duration // of one request
	Late       time.Duration
	Slack      time.Duration // of the order check
	Repeat     int

	Scrape     time.Duration `json:",omitempty"` // between two readings of the pages of metrics; 0: none
	Traced     float64       `json:",omitempty"` // share of the messages that a started broker records; 0: traces are off
	WithLimits bool
	Strict     bool // duplicates and overtaking are failures too
	Audit      bool `json:",omitempty"` // as Strict, and the audit must find no difference
}

// A list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// maxPullBatch is the largest limit of the claim route.
const maxPullBatch = 500

func (c *Config) register(f *flag.FlagSet) {
	f.StringVar(&c.URL, "url", "", "broker to load; without it the run starts one. At the end its producer, channels "+
		"and consumers are removed, or named with the commands that remove them")
	f.BoolVar(&c.Own, "i-own-this-broker", false, "allow a --url that is not on loopback")
	f.StringVar(&c.AdminToken, "admin-token", "", "X-Broker-Admin-Token, where management is not open")
	f.Bool("embedded", true, "start a broker on the embedded stores (the default)")
	f.StringVar(&c.MySQL, "mysql", "", "start a broker on this MySQL `DSN`: a scratch database, rows stay in it; with "+
		"--url: where that broker's CPU and settings are to be looked for")
	f.StringVar(&c.Redis, "redis", "", "and on this Redis `URL`; with --url as --mysql")
	f.StringVar(&c.Binary, "broker-binary", "", "broker to start; default: the program broker in the folder of this "+
		"one, otherwise in PATH")
	f.Var(&c.BrokerEnv, "broker-env", "`NAME=VALUE` for a started broker; may be repeated")
	f.IntVar(&c.Connections, "connections", 64, "producer connections")
	f.Float64Var(&c.Rate, "rate", 0, "messages per second, sent on schedule (open loop); 0: as fast as answers come "+
		"(closed loop)")
	f.IntVar(&c.Payload, "payload", 1024, "bytes of a body")
	f.StringVar(&c.PayloadFrom, "payload-from", "", "take bodies from a `file or folder`")
	f.StringVar(&c.PayloadField, "payload-field", "", "--payload-from is a JSON file with an array of objects; each "+
		"element of the arrays in this `field` is a body, byte for byte")
	f.StringVar(&c.ContentType, "content-type", "application/octet-stream", "Content-Type of every message")
	f.StringVar(&c.Priority, "priority", "0", "priority mix, as 0:90,1023:10 (priority:weight)")
	f.IntVar(&c.Channels, "channels", 1, "channels, used in turn")
	f.IntVar(&c.Batch, "batch", 1, "messages per request; above 1 through the batch route")
	f.BoolVar(&c.MessageIDs, "message-ids", false, "send X-Broker-Message-ID and repeat posts whose outcome is unknown")
	f.IntVar(&c.PushConsumers, "push-consumers", 1, "push consumers per channel, served by sinks in this process")
	f.Var(&c.Policy, "policy", "`field=value` of the policy of each consumer, as rateLimit=100/1s or ordered=true; may "+
		"be repeated. The ledger checks these two at push consumers")
	f.Var(&c.Channel, "channel",
		"`field=value` of each channel, as ack=journal or duplicates=acknowledge; may be repeated")
	f.IntVar(&c.Keys, "keys", 0, "ordering keys, shared out to the connections; each message has one")
	f.StringVar(&c.Sink, "sink", "ok", "behaviour of the sinks: ok, slow=50ms, fail=5%, hang=1%, 429=10%, or several, "+
		"separated by commas")
	f.IntVar(&c.PullWorkers, "pull-workers", 0, "workers per channel of one pull consumer")
	f.IntVar(&c.PullBatch, "pull-batch", 1, "jobs per claim; above 1 through the batch routes")
	f.BoolVar(&c.ConsumeAfter, "consume-after", false, "pull workers begin only when publishing has ended: a backlog "+
		"builds up, then its drain is measured")
	f.DurationVar(&c.Warmup, "warmup", 2*time.Second, "not measured, but reconciled")
	f.DurationVar(&c.Duration, "duration", 10*time.Second, "measured time")
	f.Uint64Var(&c.Messages, "messages", 0, "send this many messages instead of a duration")
	f.IntVar(&c.Passes, "passes", 0, "send every body of --payload-from this often instead of a duration; with "+
		"--messages the two must agree")
	f.DurationVar(&c.Quiet, "quiet", 500*time.Millisecond,
		"wait this long for copies after the last delivery that is owed")
	f.DurationVar(&c.Drain, "drain", 30*time.Second, "give up on the rest when no delivery has arrived for this long")
	f.Int64Var(&c.MaxBacklog, "max-backlog", 0, "pause the producers of a closed loop while more deliveries than this "+
		"are owed; 0: never")
	f.DurationVar(&c.Timeout, "timeout", 10*time.Second, "of one request")
	f.DurationVar(&c.Late, "late", time.Second, "a delivery after this time counts as late; 0: none does")
	f.DurationVar(&c.Slack, "order-slack", 200*time.Millisecond, "overtaking closer than this is not counted")
	f.IntVar(&c.Repeat, "repeat", 1, "measure this often, on the same broker")
	f.DurationVar(&c.Scrape, "scrape", 0, "read /metrics and /metrics/consumers at this interval; 0: never")
	f.Float64Var(&c.Traced, "traced", 0, "share of the messages that a started broker sends traces of; 0: none are")
	f.BoolVar(&c.WithLimits, "with-limits", false, "measure the ceilings of this machine between the repeats and print "+
		"the efficiency")
	f.BoolVar(&c.Strict, "strict", false, "fail also for duplicates and for messages out of priority order")
	f.BoolVar(&c.Audit, "audit", false, "as --strict, with --message-ids; compare each delivery with its message byte "+
		"for byte, headers and attempt included, ask the broker about every message, and fail for any difference or error")
}

// validate rejects settings without a bound or a meaning.
func (c *Config) validate() error {
	return errors.Join(c.checkBounds(), c.checkLoad(), c.checkConsumers(), c.checkBroker(), c.checkMessages())
}

func between(name string, v, low, high int) error {
	if v < low || v > high {
		return fmt.Errorf("--%s is %d: want %d to %d", name, v, low, high)
	}
	return nil
}

func lasting(name string, v, low, high time.Duration) error {
	if v < low || v > high {
		return fmt.Errorf("--%s is %s: want %s to %s", name, v, low, high)
	}
	return nil
}

// checkBounds checks the flags that have a range and nothing else.
func (c *Config) checkBounds() error {
	return errors.Join(
		between("connections", c.Connections, 1, 8192),
		between("channels", c.Channels, 1, 1000),
		between("batch", c.Batch, 1, 5000),
		between("push-consumers", c.PushConsumers, 0, 256),
		between("keys", c.Keys, 0, 1_000_000),
		between("pull-workers", c.PullWorkers, 0, 256),
		between("pull-batch", c.PullBatch, 1, maxPullBatch),
		between("repeat", c.Repeat, 1, 100),
		lasting("warmup", c.Warmup, 0, time.Hour),
		lasting("drain", c.Drain, 0, 24*time.Hour),
		lasting("quiet", c.Quiet, 0, time.Hour),
		lasting("timeout", c.Timeout, 10*time.Millisecond, 10*time.Minute),
		lasting("late", c.Late, 0, time.Hour),
		lasting("order-slack", c.Slack, 0, time.Hour),
	)
}

// checkLoad checks how much is sent. It resolves the number of messages and the flags that an
// audit needs.
func (c *Config) checkLoad() error {
	var errs []error
	if c.PayloadFrom == "" {
		errs = append(errs, between("payload", c.Payload, IdentitySize, maxBodyBytes))
	} else if _, err := os.Stat(c.PayloadFrom); err != nil {
		errs = append(errs, fmt.Errorf("--payload-from: %w", err))
	}
	errs = append(errs, c.resolvePasses(), c.resolveAudit())
	if c.Messages > MaxMessages {
		errs = append(errs, fmt.Errorf("--messages is %d: want at most %d", c.Messages, MaxMessages))
	}
	if c.Messages == 0 {
		errs = append(errs, lasting("duration", c.Duration, 10*time.Millisecond, 24*time.Hour))
	} else {
		c.Warmup, c.Duration = 0, 0
	}
	if !(c.Rate >= 0 && c.Rate <= 10_000_000) {
		errs = append(errs, fmt.Errorf("--rate is %v: want 0 to 10000000", c.Rate))
	}
	if c.Rate*(c.Warmup+c.Duration).Seconds() > MaxMessages {
		errs = append(errs, fmt.Errorf("rate and duration make more than %d messages", MaxMessages))
	}
	return errors.Join(errs...)
}

func (c *Config) checkConsumers() error {
	var errs []error
	if n := c.Channels * c.consumersPerChannel(); n > 10_000 {
		errs = append(errs, fmt.Errorf("%d consumers in all: want at most 10000", n))
	}
	if c.Keys > 0 && (c.Keys < c.Connections || c.Batch > 1) {
		errs = append(errs, errors.New("--keys: want as many as --connections, and --batch 1: a connection sends the "+
			"messages of its keys one after the other"))
	}
	errs = append(errs, checkFields("policy", c.Policy), checkFields("channel", c.Channel))
	if c.MaxBacklog < 0 || c.MaxBacklog > 0 && c.Rate > 0 {
		errs = append(errs, errors.New("--max-backlog is for closed loops"))
	}
	if c.ConsumeAfter && (c.PullWorkers == 0 || c.MaxBacklog > 0) {
		errs = append(errs, errors.New("--consume-after needs --pull-workers, and goes without --max-backlog"))
	}
	return errors.Join(errs...)
}

// checkFields checks a flag that names fields of a resource. The broker checks their values.
func checkFields(flag string, fields list) error {
	var errs []error
	for _, field := range fields {
		if name, _, ok := strings.Cut(field, "="); !ok || name == "" {
			errs = append(errs, fmt.Errorf("--%s %q: want field=value", flag, field))
		}
	}
	return errors.Join(errs...)
}

// checkBroker checks which broker is loaded, or started.
func (c *Config) checkBroker() error {
	var errs []error
	if (c.MySQL == "") != (c.Redis == "") {
		errs = append(errs, errors.New("--mysql and --redis go together"))
	}
	if c.URL != "" {
		errs = append(errs, checkURL(c.URL, c.Own))
	}
	if c.Traced < 0 || c.Traced > 1 || c.Traced > 0 && c.URL != "" {
		errs = append(errs, errors.New("--traced wants a share from 0 to 1, of the messages of a broker that is started"))
	}
	for _, e := range c.BrokerEnv {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			errs = append(errs, errors.New("--broker-env wants NAME=VALUE"))
		}
	}
	return errors.Join(errs...)
}

// checkMessages checks the form of messages and what sinks answer.
func (c *Config) checkMessages() error {
	var errs []error
	if strings.ContainsFunc(c.ContentType, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) ||
		c.ContentType == "" {
		errs = append(errs, errors.New("--content-type: want printable ASCII without quotes"))
	}
	if _, err := ParseMix(c.Priority); err != nil {
		errs = append(errs, err)
	}
	if _, err := ParseBehaviour(c.Sink); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Config) consumersPerChannel() int {
	n := c.PushConsumers
	if c.PullWorkers > 0 {
		n++
	}
	return n
}

func (c *Config) payloads() (*Payloads, error) {
	switch {
	case c.PayloadField != "":
		return ReadPayloadField(c.PayloadFrom, c.PayloadField)
	case c.PayloadFrom != "":
		return ReadPayloads(c.PayloadFrom)
	default:
		return NewPayloads(c.Payload)
	}
}

// resolvePasses turns Passes into Messages.
func (c *Config) resolvePasses() error {
	if c.PayloadFrom == "" && (c.Passes != 0 || c.PayloadField != "") {
		return errors.New("--passes and --payload-field need --payload-from")
	}
	if c.Passes == 0 {
		return nil
	}
	if c.Passes < 0 || c.Passes > 1_000_000 {
		return fmt.Errorf("--passes is %d: want 0 to 1000000", c.Passes)
	}
	p, err := c.payloads()
	if err != nil {
		return err
	}
	n := uint64(c.Passes) * uint64(p.Bodies())
	if c.Messages != 0 && c.Messages != n {
		return fmt.Errorf("--passes %d of %d bodies are %d messages, not %d", c.Passes, p.Bodies(), n, c.Messages)
	}
	c.Messages = n
	return nil
}

// resolveAudit turns on the settings that an audit needs.
func (c *Config) resolveAudit() error {
	if !c.Audit {
		return nil
	}
	c.Strict, c.MessageIDs = true, true
	if c.Messages == 0 || c.Messages > maxAudit {
		return fmt.Errorf("--audit needs --messages or --passes, at most %d messages", maxAudit)
	}
	return nil
}

// stores returns the stores of the broker as text for the report.
func (c *Config) stores() string {
	switch {
	case c.URL != "":
		return "of the broker at " + c.URL
	case c.MySQL != "":
		return "MySQL and Redis"
	default:
		return "embedded"
	}
}

// checkURL allows only a broker on this machine, unless the user confirms that the broker is
// theirs.
func checkURL(raw string, own bool) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Path != "" &&
		u.Path != "/" {
		return errors.New("--url: want http://host:port")
	}
	if own {
		return nil
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") {
		return nil
	}
	return errors.New("--url is not on loopback: load only your own broker, and confirm that with --i-own-this-broker")
}

// hostPort returns the address of an http URL with its port.
func hostPort(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("port %q", port)
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// cores is the number of processors that all processes of a run share.
func cores() int { return runtime.NumCPU() }
