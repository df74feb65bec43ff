package ctl

import (
	"cmp"
	"os"
	"strings"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const defaultURL = "http://127.0.0.1:8080"

// A target is the broker that is meant.
type target struct {
	URL, token string
	profile    string // its name; "": none
	dangerous  bool   // asks for a name before it destroys
}

// find finds out which broker is meant: that of --url, of --profile, of PENSTOCK_URL, of the profile in use, or the
// one of this machine. A token of the environment goes to no broker of a profile, and that of a profile to no
// other URL.
func (s *session) find() (t target, err error) {
	fromEnv, err := s.environment("PENSTOCK_URL")
	if err != nil {
		return t, err
	}
	token, err := s.environment("PENSTOCK_TOKEN")
	if err != nil {
		return t, err
	}
	switch {
	case s.url != "" && s.profile != "":
		return t, wrong("--url and --profile are two brokers")
	case s.url != "" || s.profile == "" && fromEnv != "":
		return target{URL: cmp.Or(s.url, fromEnv), token: cmp.Or(s.token, token)}, nil
	}
	all, err := s.readProfiles()
	if err != nil {
		return t, err
	}
	name := cmp.Or(s.profile, all.Current)
	if name == "" {
		return target{URL: defaultURL, token: cmp.Or(s.token, token)}, nil
	}
	p, ok := all.Profiles[name]
	if !ok {
		return t, local("there is no profile %q: broker ctl profile ls lists them", name)
	}
	t = target{URL: p.URL, token: s.token, profile: name, dangerous: p.Danger}
	if t.token == "" {
		t.token, err = p.token()
	}
	return t, err
}

// environment reads a variable, or the file that it names with _FILE at its end.
func (s *session) environment(name string) (string, error) {
	text, file := s.Getenv(name), s.Getenv(name+"_FILE")
	switch {
	case file == "":
		return text, nil
	case text != "":
		return "", local("%s and %s_FILE are both set", name, name)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", local("%s_FILE: %v", name, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// broker returns the client of the broker that is meant.
func (s *session) broker() (*penstock.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	t, err := s.find()
	if err != nil {
		return nil, err
	}
	s.target = t
	s.client, err = s.dial(t, penstock.Options{ProducerID: "ctl"})
	return s.client, err
}

// dial makes a client that acts as the producer and with the tokens of o. It sends nothing.
func (s *session) dial(t target, o penstock.Options) (*penstock.Client, error) {
	o.URL, o.AdminToken, o.OnlyOptions, o.Tries = t.URL, t.token, true, 2
	c, err := penstock.New(o)
	if err != nil {
		return nil, local("%s", strings.TrimPrefix(err.Error(), "penstock: "))
	}
	return c, nil
}

// manager returns what reads and changes the resources of the broker.
func (s *session) manager() (*penstock.Manager, error) {
	c, err := s.broker()
	if err != nil {
		return nil, err
	}
	return c.Manage(), nil
}
