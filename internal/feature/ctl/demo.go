package ctl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

const (
	// demoFile is in the data folder of a broker that runs with --demo, while it runs.
	demoFile = "demo.json"
	// mostNearest bounds the names that broker publish suggests, mostKnown those that it looks at.
	mostNearest, mostKnown = 3, 1000
)

// A Demo is what a publisher to the sample channel of broker serve --demo needs.
type Demo struct{ URL, Producer, ProducerToken, Channel, ChannelToken string }

// Write writes the file of the demo into a data folder, for its owner alone, and returns what removes it. A folder
// that does not exist stays so: nothing is written.
func (d Demo) Write(folder string) (remove func(), err error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return func() {}, nil
	}
	path := filepath.Join(folder, demoFile)
	text, err := json.Marshal(d)
	if err == nil {
		err = privatefile.Make(path)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o600)
	}
	return func() { _ = os.Remove(path) }, err
}

// readDemo reads the file of the demo whose broker has its data in this folder. The zero Demo: there is none.
func (s *session) readDemo() (d Demo, err error) {
	path := filepath.Join(cmp.Or(s.Getenv("BROKER_DATA_DIR"), "./data"), demoFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err == nil && d.URL == "" {
		err = errors.New("it has no URL")
	}
	if err != nil {
		return d, local("the file of the demo cannot be read: %s: %v", path, err)
	}
	return d, nil
}

// publishHere is broker publish: ctl publish to the demo of this folder, unless another broker is named.
func (s *session) publishHere() *cobra.Command {
	c := s.publishing("", s.sendHere)
	c.Short = "publish a message to the broker of make run (serve --demo)"
	c.Long = "Producer and tokens are those that the demo has written into its data folder, ./data or BROKER_DATA_DIR.\n" +
		"With --url or --profile, or without a demo, it is broker ctl publish."
	c.Example = "broker publish sample-channel '{\"hello\":\"world\"}'\n" +
		"broker publish sample-channel -f message.json --id m-1"
	s.inTarget(c)
	return c
}

// sendHere publishes a message, and says where it is.
func (s *session) sendHere(c *cobra.Command, channel, producer string, m penstock.Message) error {
	d, err := s.demoOrNone()
	if err != nil {
		return err
	}
	client, err := s.producingHere(c, d, channel, cmp.Or(producer, d.Producer, "ctl"))
	var r penstock.Receipt
	if err == nil {
		defer client.Close()
		r, err = client.Publish(c.Context(), channel, m)
	}
	switch base := s.target.URL; {
	case err == nil:
		where := r.Location
		if strings.Contains(where, "/message/") { // the dashboard has a page of it
			where = "/ui" + where
		}
		return s.done(received(r), "%s is published to %s%s; look at %s%s", r.MessageID, channel, noteOf(r),
			strings.TrimRight(base, "/"), where)
	case codeOf(err) == exitUnreachable && s.local(base):
		return &stoppedError{fmt.Sprintf("no broker answers at %s: start one with make run (or broker serve --demo), in "+
			"another terminal", base), err}
	case penstock.CodeOf(err) == "channel_not_found":
		return &stoppedError{fmt.Sprintf("there is no channel %q%s", channel, s.nearTo(c, channel)), err}
	}
	return err
}

// local reports whether the broker is the one that make run starts, or its demo.
func (s *session) local(base string) bool {
	d, err := s.readDemo()
	return err == nil && base == d.URL || base == defaultURL
}

// demoOrNone finds out which broker is meant, as broker does, but takes the demo of this folder first where no other
// one is named.
func (s *session) demoOrNone() (d Demo, err error) {
	if s.target, err = s.find(); err != nil {
		return d, err
	}
	if s.url != "" || s.target.profile != "" || s.target.URL != defaultURL {
		return d, nil
	}
	if d, err = s.readDemo(); err == nil && d.URL != "" {
		s.target.URL = d.URL
	}
	if err == nil {
		s.client, err = s.dial(s.target, penstock.Options{ProducerID: "ctl"})
	}
	return d, err
}

// producingHere returns a client that publishes as a producer. The sample channel needs no management.
func (s *session) producingHere(c *cobra.Command, d Demo, channel, producer string) (*penstock.Client, error) {
	o := penstock.Options{ProducerID: producer}
	if producer == d.Producer {
		o.ProducerToken = d.ProducerToken
	}
	if d.Channel != channel {
		client, err := s.producing(c, channel, producer)
		if err != nil || o.ProducerToken == "" {
			return client, err
		}
		client.Close()
		return s.dial(s.target, o)
	}
	o.ChannelToken = d.ChannelToken
	return s.dial(s.target, o)
}

// nearTo is a hint at the channels whose names are nearest to one that there is not, or at some that there are.
func (s *session) nearTo(c *cobra.Command, name string) string {
	manager, err := s.manager()
	if err != nil {
		return ""
	}
	var all []string
	err = manager.Each(c.Context(), "/channels", nil, mostKnown, func(raw json.RawMessage) error {
		var link string
		err := json.Unmarshal(raw, &link)
		if one := link[strings.LastIndexByte(link, '/')+1:]; !strings.HasPrefix(one, "~") { // which nobody publishes to
			all = append(all, one)
		}
		return err
	})
	switch {
	case err != nil:
		return ""
	case len(all) == 0:
		return ", and no other one"
	}
	var near []string
	slices.Sort(all)
	rest := slices.Clone(all)
	for len(near) < mostNearest {
		one := s.Nearest(name, rest)
		if one == "" {
			break
		}
		near = append(near, one)
		rest = slices.DeleteFunc(rest, func(k string) bool { return k == one })
	}
	if len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return "; there is " + strings.Join(all[:min(len(all), mostNearest)], ", ")
}
