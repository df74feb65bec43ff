package penstock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Options are the settings of a Client. What is zero comes from the environment, and else has the
// default. The name of each variable may end in _FILE: then it names a file with the value.
type Options struct {
	// URL of the broker, http or https; a path in it is a prefix. PENSTOCK_URL, http://127.0.0.1:8080.
	URL string
	// ProducerID is whose messages the client publishes. PENSTOCK_PRODUCER_ID, "penstock".
	ProducerID string
	// Tokens that are given are used as they are, for every channel. Those that are not are those that
	// the broker has: the client makes producer, channel and consumer, or reads them, which needs open
	// management or AdminToken. PENSTOCK_PRODUCER_TOKEN, PENSTOCK_CHANNEL_TOKEN, PENSTOCK_CONSUMER_TOKEN.
	ProducerToken, ChannelToken, ConsumerToken string
	// Token stands for each of these three that is not given. PENSTOCK_TOKEN.
	Token string
	// AdminToken goes with management requests only. PENSTOCK_ADMIN_TOKEN.
	AdminToken string

	// OnlyOptions: the environment is not read.
	OnlyOptions bool

	Timeout   time.Duration     // of one request, what it waits at the broker not counted; 10 s
	Tries     int               // of a publish, within 30 s; 5
	Transport http.RoundTripper // nil: one of its own, with a pool of connections
	Logger    *slog.Logger      // nil: slog.Default()
}

const (
	defaultURL     = "http://127.0.0.1:8080"
	defaultTimeout = 10 * time.Second
	defaultTries   = 5
)

// complete fills what is zero from the environment and the defaults.
func (o *Options) complete() error {
	var wrong []error
	read := func(to *string, name, otherwise string) {
		if *to == "" {
			text, err := o.environment(name)
			wrong = append(wrong, err)
			*to = cmp.Or(text, otherwise)
		}
	}
	read(&o.URL, "PENSTOCK_URL", defaultURL)
	read(&o.ProducerID, "PENSTOCK_PRODUCER_ID", "penstock")
	read(&o.Token, "PENSTOCK_TOKEN", "")
	read(&o.ProducerToken, "PENSTOCK_PRODUCER_TOKEN", o.Token)
	read(&o.ChannelToken, "PENSTOCK_CHANNEL_TOKEN", o.Token)
	read(&o.ConsumerToken, "PENSTOCK_CONSUMER_TOKEN", o.Token)
	read(&o.AdminToken, "PENSTOCK_ADMIN_TOKEN", "")
	o.Timeout, o.Tries = cmp.Or(o.Timeout, defaultTimeout), cmp.Or(o.Tries, defaultTries)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(wrong...)
}

// base is the URL without a slash at its end. What stands in it besides host and path is refused.
func (o *Options) base() (string, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("penstock: the URL of the broker must be like http://127.0.0.1:8080")
	case u.User != nil:
		return "", errors.New("penstock: the URL of the broker must not have a user name or password; tokens are options")
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("penstock: the URL of the broker must not have a query or fragment")
	}
	return strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

// environment reads NAME, or the file that NAME_FILE names, without the line end behind the value.
func (o *Options) environment(name string) (string, error) {
	if o.OnlyOptions {
		return "", nil
	}
	text, file := os.Getenv(name), os.Getenv(name+"_FILE")
	switch {
	case file == "":
		return text, nil
	case text != "":
		return "", fmt.Errorf("penstock: %s and %s_FILE are both set", name, name)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("penstock: %s_FILE: %w", name, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
