package ctl

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const tokensPath = "/tokens"

// A listedToken is an API token as the API lists it.
type listedToken struct {
	ID, Name              string
	Scopes                []string
	ExpiresAt, LastUsedAt *time.Time
	Expired               bool
	Refused               string
}

func (s *session) tokens() *cobra.Command {
	return group("token", "make, list and end API tokens", s.createToken(), s.listTokens(), s.removeToken())
}

func (s *session) createToken() *cobra.Command {
	var scopes []string
	var expires string
	c := leaf{use: "create NAME", about: "make an API token and print it, once",
		long: "A scope is management:read, management:write, channel:X, consumer:X/K or dlq. Without --expires the token\n" +
			"has no end.",
		examples: "broker ctl token create nightly --scope channel:orders --expires 24h\n" +
			"broker ctl token create reader --scope management:read --scope dlq --json",
		least: 1, most: 1, run: func(c *cobra.Command, args []string) error {
			if len(scopes) == 0 {
				return wrong("--scope is missing: what the token opens")
			}
			m, err := s.manager()
			if err != nil {
				return err
			}
			body := map[string]any{"Name": args[0], "Scopes": scopes}
			if expires != "" {
				body["Expires"] = expires
			}
			var raw json.RawMessage
			if err := m.Post(c.Context(), tokensPath, body, &raw); err != nil {
				return err
			}
			var made struct{ Token string }
			if err := json.Unmarshal(raw, &made); err != nil {
				return err
			}
			return s.done(raw, "%s", made.Token)
		}}.command()
	c.Flags().StringArrayVar(&scopes, "scope", nil, "a `SCOPE` of the token; may occur several times")
	c.Flags().StringVar(&expires, "expires", "", "how long it lasts, as `24h`")
	return c
}

func (s *session) listTokens() *cobra.Command {
	var limit int
	return listLimit(leaf{use: "ls", about: "list the API tokens", examples: "broker ctl token ls",
		run: func(c *cobra.Command, _ []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			t := s.table("ID", "NAME", "SCOPES", "EXPIRES", "LAST USED", "")
			err = m.Each(c.Context(), tokensPath, nil, limit, func(raw json.RawMessage) error {
				var k listedToken
				if err := json.Unmarshal(raw, &k); err != nil {
					return err
				}
				state := k.Refused
				if k.Expired {
					state = "expired"
				}
				t.row(raw, k.ID, k.Name, strings.Join(k.Scopes, " "), when(k.ExpiresAt), when(k.LastUsedAt), state)
				return t.err
			})
			if err != nil {
				return err
			}
			return t.print()
		}}.command(), &limit)
}

func (s *session) removeToken() *cobra.Command {
	var confirmed string
	c := leaf{use: "rm ID", about: "end an API token", long: "A name that one token alone has stands for its ID.",
		examples: "broker ctl token rm nightly", least: 1, most: 1, run: func(c *cobra.Command, args []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			if err := s.confirm("end", args[0], confirmed); err != nil {
				return err
			}
			id, err := s.tokenID(c, m, args[0])
			if err == nil {
				err = m.Delete(c.Context(), tokensPath+"/"+url.PathEscape(id))
			}
			if err != nil {
				return err
			}
			return s.done(map[string]any{"ID": id, "Done": "ended"}, "the API token %s is ended", args[0])
		}}.command()
	c.Flags().StringVar(&confirmed, "confirm", "", "`NAME` of what goes, where the profile asks for it")
	return c
}

// tokenID returns the ID of the token with an ID or a name.
func (s *session) tokenID(c *cobra.Command, m *penstock.Manager, name string) (string, error) {
	var named []string
	found := false
	err := m.Each(c.Context(), tokensPath, nil, 0, func(raw json.RawMessage) error {
		var k listedToken
		if err := json.Unmarshal(raw, &k); err != nil {
			return err
		}
		if found = found || k.ID == name; k.Name == name {
			named = append(named, k.ID)
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case found || len(named) == 0: // the broker says that there is none
		return name, nil
	case len(named) > 1:
		return "", wrong("%d tokens have the name %q: %s", len(named), name, strings.Join(named, ", "))
	}
	return named[0], nil
}
