package importer

import (
	"database/sql"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
)

// A Seed is an INI file of the older implementation.
type Seed struct {
	DSN      string   // of its database, "" if it names none
	Settings []string // what a broker is to be given that does the same, "NAME=value"
	Notes    []string // what the file has and this broker has not, or in another form
	seed     seedfile.Seed
}

// ReadSeed reads an INI file. Only text that is none is an error, a *seedfile.SyntaxError.
func ReadSeed(text []byte) (Seed, error) {
	seed, warnings, err := seedfile.Parse(text)
	if err != nil {
		return Seed{}, err
	}
	of, err := seedfile.Values(text)
	if err != nil {
		return Seed{}, err
	}
	s := Seed{seed: seed}
	for _, w := range warnings {
		s.Notes = append(s.Notes, string(w))
	}
	if d := of("rdbms", "dialect"); d == "mysql" {
		s.DSN = of("rdbms", "connection-url")
	} else if d != "" {
		s.Notes = append(s.Notes, "[rdbms] dialect: only mysql is read")
	}
	for _, one := range settings {
		value := of(one.section, one.key)
		if value == "" {
			continue
		}
		if text := one.value(value); text != "" {
			s.Settings = append(s.Settings, one.setting+"="+text)
		} else {
			s.Notes = append(s.Notes, fmt.Sprintf("[%s] %s has no meaning here as it is: see %s", one.section, one.key,
				one.setting))
		}
	}
	if of("gateway-auth", "mode") == "hmac" {
		s.Notes = append(s.Notes, "[gateway-auth] hmac-shared-secret: put it into a file for BROKER_GATEWAY_SECRET_FILE")
	}
	return s, nil
}

// Print prints settings and notes.
func (s *Seed) Print(out io.Writer) {
	for _, note := range s.Notes {
		fmt.Fprintln(out, "note: seed file:", note)
	}
	if len(s.Settings) > 0 {
		fmt.Fprintln(out, "settings of this broker that are those of the seed file:")
		for _, one := range s.Settings {
			fmt.Fprintln(out, "  "+one)
		}
	}
}

// rows returns the resources of a kind as rows of the old database.
func (s *Seed) rows(kind string) (out []resource) {
	text := func(v string) sql.NullString { return sql.NullString{String: v, Valid: true} }
	switch kind {
	case producers, channels:
		list := s.seed.Producers
		if kind == channels {
			list = s.seed.Channels
		}
		for _, r := range list {
			out = append(out, resource{id: text(r.ID), name: text(r.Name), token: text(r.Token)})
		}
	case consumers:
		for _, k := range s.seed.Consumers {
			push := sql.NullInt64{Int64: 1, Valid: true}
			if k.Type == durable.Pull {
				push.Int64 = 0
			}
			out = append(out, resource{id: text(k.ID), token: text(k.Token), callbackURL: text(k.CallbackURL),
				channel: text(k.Channel), consumerType: push})
		}
	}
	return out
}

// A setting is one of the older implementation that this broker has.
type setting struct {
	section, key, setting string
	value                 func(text string) string // "": it cannot be taken
}

var settings = []setting{
	{"http", "listener", "BROKER_LISTEN", asIs},
	{"broker", "max-retry", "BROKER_MAX_RETRIES", number("")},
	{"broker", "retry-backoff-delays-in-seconds", "BROKER_RETRY_BACKOFF", seconds},
	{"broker", "rational-delay-in-seconds", "BROKER_RATIONAL_DELAY", number("s")},
	{"consumer-connection", "connection-timeout-in-seconds", "BROKER_DELIVERY_TIMEOUT", number("s")},
	{"consumer-connection", "token-header-name", "BROKER_CONSUMER_TOKEN_HEADER", asIs},
	{"consumer-connection", "user-agent", "BROKER_USER_AGENT", asIs},
	{"prune", "message-retention-days", "BROKER_RETENTION", days},
	{"gateway-auth", "hmac-timestamp-tolerance-seconds", "BROKER_GATEWAY_TOLERANCE", number("s")},
	{"gateway-auth", "auth-exempt-paths", "BROKER_GATEWAY_EXEMPT", asIs},
}

func asIs(text string) string { return text }

// number is a whole number with a unit.
func number(unit string) func(string) string {
	return func(text string) string {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return ""
		}
		return strconv.FormatUint(n, 10) + unit
	}
}

// seconds is a list of seconds.
func seconds(text string) string {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		if parts[i] = number("s")(strings.TrimSpace(part)); parts[i] == "" {
			return ""
		}
	}
	return strings.Join(parts, ",")
}

// days is a number of days, in hours.
func days(text string) string {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(24*n, 10) + "h"
}
