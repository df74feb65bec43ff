package ctl

import (
	"encoding/json"
	"net/url"
	"sync"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// An exportedLetter is a dead letter with its message.
type exportedLetter struct {
	Job     json.RawMessage            // as dlq ls shows it
	Message map[string]json.RawMessage // without its jobs; nil: it is gone
}

func (s *session) exportDead() *cobra.Command {
	var fingerprint, reason, from, to string
	var limit int
	c := leaf{use: "export CHANNEL/CONSUMER", about: "print the dead letters of a consumer with their messages",
		long: "Each line is a JSON object with the members Job and Message, also without --json. Nothing is changed.",
		examples: "broker ctl dlq export orders/billing > dead.ndjson\n" +
			"broker ctl dlq export orders/billing --reason attempts_exhausted --limit 10",
		least: 1, most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			query := url.Values{}
			for name, value := range map[string]string{"fingerprint": fingerprint, "reason": reason, "from": from, "to": to} {
				if value != "" {
					query.Set(name, value)
				}
			}
			var some []exportedLetter
			err = m.Each(c.Context(), path+"/dlq", query, limit, func(raw json.RawMessage) error {
				if some = append(some, exportedLetter{Job: raw}); len(some) < readers {
					return nil
				}
				defer func() { some = some[:0] }()
				return s.exportLetters(c, m, some)
			})
			if err != nil {
				return err
			}
			return s.exportLetters(c, m, some)
		}}.command()
	selection(c.Flags(), &fingerprint, &reason, &from, &to)
	c.Flags().IntVar(&limit, "limit", 0, "`NUMBER` of dead letters, at most; 0: all")
	return c
}

// exportLetters reads the messages of dead letters and prints them together.
func (s *session) exportLetters(c *cobra.Command, m *penstock.Manager, some []exportedLetter) error {
	errs := make([]error, len(some))
	var group sync.WaitGroup
	for i := range some {
		group.Go(func() {
			var j penstock.ListedJob
			if errs[i] = json.Unmarshal(some[i].Job, &j); errs[i] != nil {
				return
			}
			errs[i] = m.Read(c.Context(), j.MessageURL, nil, &some[i].Message)
			if isGone(errs[i]) { // deleted since the list was made
				errs[i] = nil
			}
			for _, member := range []string{"Jobs", "Pages", "Links"} {
				delete(some[i].Message, member)
			}
		})
	}
	group.Wait()
	for i, letter := range some {
		if errs[i] != nil {
			return errs[i]
		}
		if err := s.line(letter); err != nil {
			return err
		}
	}
	return nil
}
