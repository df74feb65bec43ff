package rehearse

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// A Config is what is rehearsed.
type Config struct {
	URL, AdminToken string
	Own             bool // the owner of the broker has said that it is theirs
	Scenario        string
	Break, Mend     string // commands for a shell
	Sink, SinkURL   string // where the push consumer listens, and where the broker finds it
	Policy          fields
	Rate            float64 // messages a second
	Calm, Outage    time.Duration
	Wait            time.Duration // for all to be well
	JSON            string
}

// consumerDown is the scenario that needs no commands.
const consumerDown = "consumer-down"

// scenarios say what each of them takes away.
var scenarios = []struct{ name, without string }{
	{"redis-down", "Redis"},
	{"mysql-down", "MySQL"},
	{consumerDown, "the consumers"},
	{"broker-killed", "the broker"},
}

// Bounds of a rehearsal.
const (
	mostRate     = 500
	mostMessages = 1_000_000 // whose fate is kept in memory, some 100 bytes each
)

// fields are values NAME=VALUE of a flag that may be repeated.
type fields []string

func (f *fields) String() string { return strings.Join(*f, " ") }

func (f *fields) Set(s string) error {
	if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
		return errors.New("it must be field=value")
	}
	*f = append(*f, s)
	return nil
}

// Parse reads the flags. Its error is flag.ErrHelp where help was asked for, which it prints.
func Parse(args []string, out io.Writer) (*Config, error) {
	c := &Config{}
	f := flag.NewFlagSet("bench rehearse", flag.ContinueOnError)
	f.StringVar(&c.URL, "url", "", "broker of the installation that is to be broken")
	f.BoolVar(&c.Own, "i-own-this-broker", false, "it is yours, and no user of it is disturbed: needed")
	f.StringVar(&c.Scenario, "scenario", "", strings.Join(names(), ", "))
	f.StringVar(&c.Break, "break", "", "`command` for sh that takes it away; consumer-down needs none")
	f.StringVar(&c.Mend, "mend", "", "`command` for sh that gives it back")
	f.StringVar(&c.AdminToken, "admin-token", "", "X-Broker-Admin-Token, where management is not open")
	f.StringVar(&c.Sink, "sink", "127.0.0.1:0", "`address` of the push consumer; none: a pull consumer only")
	f.StringVar(&c.SinkURL, "sink-url", "", "`URL` by which the broker reaches it; default: http:// and the address")
	f.Var(&c.Policy, "policy", "`field=value` of both consumers, as backoff=5s,1m; may be repeated")
	f.Float64Var(&c.Rate, "rate", 20, "messages a second")
	f.DurationVar(&c.Calm, "calm", 10*time.Second, "time before the outage")
	f.DurationVar(&c.Outage, "outage", 30*time.Second, "time between --break and --mend")
	f.DurationVar(&c.Wait, "wait", 10*time.Minute, "for all to be well after the outage")
	f.StringVar(&c.JSON, "json", "", "write the verdict to this `file`")
	err := usage.Parse(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, "Usage: bench rehearse --url URL --scenario NAME --i-own-this-broker [flags]\n\n")
		usage.Help(f, out)
		fmt.Fprint(out, "\nCodes: 0 nothing was lost and all is well, 1 usage, 2 something was lost, 4 cannot run,\n"+
			"5 not well after --wait, 130/143 signal.\n")
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; bench rehearse --help lists the flags", err)
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return c, c.validate()
}

func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

// without is what the scenario takes away.
func (c *Config) without() string {
	for _, s := range scenarios {
		if s.name == c.Scenario {
			return s.without
		}
	}
	return ""
}

func (c *Config) validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return errors.New("--url is needed: the broker of the installation that is to be broken")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		return errors.New("--url must be like http://broker.staging:8080")
	case c.Scenario == "":
		return errors.New("--scenario is needed: " + strings.Join(names(), ", "))
	case c.without() == "":
		hint := "they are " + strings.Join(names(), ", ")
		if meant := problem.Nearest(c.Scenario, names()); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		return fmt.Errorf("unknown --scenario %q; %s", c.Scenario, hint)
	case !c.Own:
		return fmt.Errorf("a rehearsal takes %s away from %s: say --i-own-this-broker if it is yours, and no user of it "+
			"is disturbed", c.without(), c.URL)
	}
	return c.validateRest()
}

func (c *Config) validateRest() error {
	switch commands := c.Break != "" && c.Mend != ""; {
	case c.Scenario == consumerDown && (c.Break != "" || c.Mend != ""):
		return errors.New("consumer-down takes the consumers of the rehearsal away, without --break and --mend")
	case c.Scenario != consumerDown && !commands:
		return fmt.Errorf("%s needs --break and --mend: the commands that take %s away from this installation, and give "+
			"it back", c.Scenario, c.without())
	case !(c.Rate > 0 && c.Rate <= mostRate):
		return fmt.Errorf("--rate must be up to %d a second", mostRate)
	case c.Calm < time.Second || c.Outage < time.Second || c.Wait < time.Second:
		return errors.New("--calm, --outage and --wait must be at least 1s")
	case c.Rate*(c.Calm+c.Outage+c.Wait).Seconds() > mostMessages:
		return fmt.Errorf("--rate for all of --calm, --outage and --wait is more than %d messages", mostMessages)
	}
	if c.Sink == "none" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Sink); err != nil {
		return errors.New("--sink must be an address, as 0.0.0.0:9000, or none")
	}
	return nil
}
