package ctl

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// exported are the members of resources that a manifest has, besides the policy.
var exported = map[string][]string{
	"producer": {"StatusEvents", "ReplyUrl", "SigningSecret", "MaxStoredBytes", "MaxScheduled", "PublishRate"},
	"channel": {"Duplicates", "Identity", "Ack", "LatencyBudget", "ExpectEvery", "PublishRate", "Group",
		"Retention", "RetentionMessages", "RetentionBytes", "DeadRetention",
		"AttemptRetention"},
	"group":    {"MaxChannels", "PublishRate"},
	"consumer": {"Type", "CallbackURL", "Protocol"},
}

func (s *session) export() *cobra.Command {
	return leaf{use: "export", about: "print producers, groups, channels and consumers as one YAML",
		long: "Tokens and secrets are ${NAME}, a variable of the environment for diff and apply. What a consumer inherits\n" +
			"is left out, and so are pauses, keys of SQS clients and what belongs to the broker itself.",
		examples: "broker ctl export > broker.yaml\nbroker ctl export --json", run: func(c *cobra.Command, _ []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			all, err := newExporter(m).all(c)
			if err != nil {
				return err
			}
			if s.json {
				return s.line(all)
			}
			e := yaml.NewEncoder(s.Stdout)
			e.SetIndent(2)
			if err := e.Encode(all); err != nil {
				return err
			}
			return e.Close()
		}}.command()
}

// An exporter writes a manifest.
type exporter struct {
	m     *penstock.Manager
	names map[string]bool // variables that are in use
}

func newExporter(m *penstock.Manager) *exporter { return &exporter{m, map[string]bool{}} }

// mapping is a mapping of YAML.
type mapping map[string]any

func (x *exporter) all(c *cobra.Command) (mapping, error) {
	list := func(k kind, path, before string) (mapping, error) {
		all := mapping{}
		return all, resources(c.Context(), x.m, path, nil, 0, func(raw json.RawMessage) error {
			var r penstock.Resource
			err := json.Unmarshal(raw, &r)
			if err == nil {
				err = json.Unmarshal(raw, &r.More)
			}
			if err == nil && !strings.HasPrefix(r.ID, "~") {
				all[r.ID] = x.resource(k, before+r.ID, r)
			}
			return err
		})
	}
	of, err := list(producers, "/producers", "")
	if err != nil {
		return nil, err
	}
	grouped, err := list(groups, "/groups", "")
	if err != nil && penstock.CodeOf(err) != "no_such_path" { // a broker of before
		return nil, err
	}
	in, err := list(channels, "/channels", "")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		got, err := list(consumers, penstock.ChannelPath(name)+"/consumers", name+"/")
		if err != nil {
			return nil, err
		}
		if len(got) > 0 {
			in[name].(mapping)["consumers"] = got
		}
	}
	all := mapping{"producers": of, "channels": in}
	if len(grouped) > 0 {
		all["groups"] = grouped
	}
	return all, nil
}

// resource is what a manifest says of a resource.
func (x *exporter) resource(k kind, name string, r penstock.Resource) mapping {
	of := mapping{}
	if k.noun != groups.noun { // a group has none
		of["token"] = x.variable(k, name, "token")
	}
	if r.Name != r.ID {
		of["name"] = escaped(r.Name)
	}
	if string(r.More["Signed"]) == "true" {
		of["publishSecret"] = x.variable(k, name, "publishSecret")
	}
	for _, member := range exported[k.noun] {
		if text := (field{member, r.More[member]}).text(); text != "" {
			of[formName(member)] = x.value(k, name, formName(member), text)
		}
	}
	if k.noun != consumers.noun {
		return of
	}
	policy := mapping{}
	for member, text := range own(r) {
		if member != "SigningSecretPrevious" {
			policy[formName(member)] = x.value(k, name, formName(member), text)
		}
	}
	of["policy"] = policy
	return of
}

// own are the members of the policy of a consumer that it sets itself.
func own(r penstock.Resource) map[string]string {
	var inherited []string
	_ = json.Unmarshal(r.More["Inherited"], &inherited) // none, as of a broker that does not say it
	all := map[string]string{}
	for name, text := range r.Policy {
		all[name] = text
	}
	for _, name := range inherited {
		delete(all, name)
	}
	return all
}

// formName is the name that the form of a PUT has for a member of an answer.
func formName(member string) string {
	if member == "CallbackURL" {
		return "callbackUrl"
	}
	return strings.ToLower(member[:1]) + member[1:]
}

var plainNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)

// value is a value as YAML has it.
func (x *exporter) value(k kind, name, field, text string) any {
	switch {
	case secrets[strings.ToLower(field)] && text != "":
		return x.variable(k, name, field)
	case text == "true" || text == "false":
		return text == "true"
	case plainNumber.MatchString(text):
		n, _ := strconv.ParseInt(text, 10, 64) // 15 digits
		return n
	}
	return escaped(text)
}

// variable is a variable for a secret that no other one has.
func (x *exporter) variable(k kind, name, field string) string {
	var b strings.Builder
	for i, r := range k.noun + "_" + name + "_" + field {
		upper := unicode.IsUpper(r) && i >= len(k.noun+name)+2
		switch r = unicode.ToUpper(r); {
		case upper:
			b.WriteString("_" + string(r))
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	of := b.String()
	for n := 2; x.names[of]; n++ {
		of = fmt.Sprintf("%s_%d", b.String(), n)
	}
	x.names[of] = true
	return "${" + of + "}"
}
