package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

var consumers = kind{noun: "consumer", argument: "CHANNEL/CONSUMER", example: "orders/billing",
	list: (*session).listConsumers,
	path: func(name string) (string, error) {
		channel, consumer, err := consumerNamed(name)
		return penstock.ConsumerPath(channel, consumer), err
	},
	verbs: []verb{pause("hold the jobs of a consumer"), resume("end a pause, or the hold after a 410"),
		plainVerb("revive", "end the hold of a dead or gone consumer", "revived",
			func(m *penstock.Manager, c *cobra.Command, path string) error { return m.Revive(c.Context(), path) }),
		retry, purge(), portalLink(), remove("delete a consumer")},
	set: "broker ctl consumer set orders/billing type=pull maxRetries=3\n" +
		"broker ctl consumer set orders/billing maxRetries="}

// consumerNamed reads CHANNEL/CONSUMER.
func consumerNamed(name string) (channel, consumer string, err error) {
	channel, consumer, ok := strings.Cut(name, "/")
	if !ok {
		return "", "", wrong("%q is no CHANNEL/CONSUMER", name)
	}
	return channel, consumer, errors.Join(id("channel", channel), id("consumer", consumer))
}

var retry = verb{name: "retry", about: "make all delayed jobs of a consumer due now",
	run: func(c *cobra.Command, m *penstock.Manager, _, name string) (any, string, error) {
		channel, consumer, _ := strings.Cut(name, "/")
		n, err := m.Retry(c.Context(), channel, consumer)
		return map[string]any{"Name": name, "Retried": n}, fmt.Sprintf("%d jobs of %s are due now", n, name), err
	}}

func purge() verb {
	var forget bool
	return verb{name: "purge", about: "end all queued jobs of a consumer", destroys: true,
		flags: func(c *cobra.Command) {
			c.Flags().BoolVar(&forget, "forget", false, "leave no dead letters of them")
		},
		run: func(c *cobra.Command, m *penstock.Manager, _, name string) (any, string, error) {
			channel, consumer, _ := strings.Cut(name, "/")
			total := 0
			for {
				n, more, err := m.Purge(c.Context(), channel, consumer, forget)
				if total += n; err != nil || !more {
					said := fmt.Sprintf("%d jobs of %s are ended", total, name)
					return map[string]any{"Name": name, "Purged": total}, said, err
				}
			}
		}}
}

// portalLink makes a link for the owner of a consumer.
func portalLink() verb {
	var ttl string
	return verb{name: "portal-link", about: "make a link that opens the pages of a consumer, for its owner",
		flags: func(c *cobra.Command) {
			c.Flags().StringVar(&ttl, "ttl", "4h", "how long it opens them, from `1h` to 24h")
		},
		run: func(c *cobra.Command, m *penstock.Manager, path, name string) (any, string, error) {
			var link struct {
				URL       string
				ExpiresAt time.Time
			}
			err := m.Post(c.Context(), path+"/portal-link", map[string]string{"TTL": ttl}, &link)
			return link, fmt.Sprintf("%s opens the pages of %s until %s, for whoever has it", link.URL, name,
				link.ExpiresAt.UTC().Format(time.RFC3339)), err
		}}
}

// A listedConsumer is what a list shows of a consumer.
type listedConsumer struct {
	ChannelID, ID, Type, State, HeldBy string
	Queued, InFlight, DeadLetters      *int
	OldestQueuedAt                     *time.Time
	Policy                             struct{ MaxAge string }
}

// waits reports whether somebody may have to look at the consumer: it does not go, has dead letters, or jobs wait.
func (k *listedConsumer) waits() bool {
	return k.State != "ACTIVE" || k.HeldBy != "" || known(k.DeadLetters) > 0 || k.OldestQueuedAt != nil
}

func (s *session) listConsumers() *cobra.Command {
	var limit int
	var state, held, sort string
	c := listLimit(leaf{use: "ls [CHANNEL]", about: "list the consumers of a channel, or of all, with their counts",
		examples: "broker ctl consumer ls\nbroker ctl consumer ls orders --json\n" +
			"broker ctl consumer ls --sort oldest --limit 10\nbroker ctl consumer ls --held true",
		most: 1, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			query := url.Values{}
			if len(args) == 1 {
				if err := id("channel", args[0]); err != nil {
					return err
				}
				query.Set("channel", args[0])
			}
			for name, value := range map[string]string{"state": state, "held": held, "sort": sort} {
				if value != "" {
					query.Set(name, value)
				}
			}
			m, err := s.manager()
			if err != nil {
				return err
			}
			t := s.table("CONSUMER", "TYPE", "STATE", "HELD BY", "QUEUED", "IN FLIGHT", "DEAD", "OLDEST")
			err = m.Each(c.Context(), "/consumers", query, limit, func(raw json.RawMessage) error {
				var k listedConsumer
				if err := json.Unmarshal(raw, &k); err != nil {
					return err
				}
				t.row(raw, k.ChannelID+"/"+k.ID, k.Type, k.State, k.HeldBy, number(k.Queued), number(k.InFlight),
					number(k.DeadLetters), when(k.OldestQueuedAt))
				return t.err
			})
			if err != nil {
				return err
			}
			return t.print()
		}}.command(), &limit)
	f := c.Flags()
	f.StringVar(&state, "state", "", "only those in `STATE`: ACTIVE, PAUSED, GONE, DEAD, PROBING")
	f.StringVar(&held, "held", "", "true: `ONLY` those whose jobs are all held back; false; or why: paused ...")
	f.StringVar(&sort, "sort", "", "`BY` oldest, dead, queued or failing, the largest first")
	return c
}

// isGone reports whether an error says that there is no such thing.
func isGone(err error) bool {
	var e *penstock.Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}
