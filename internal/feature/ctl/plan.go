package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-broker/penstock/internal/tool/quantity"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A plan is what makes a broker as a manifest says.
type plan struct {
	changes []change // in an order in which each may fail, and all be run again
	kept    int      // tokens and secrets that could not be compared, and stay
}

// A change makes, changes or deletes a resource.
type change struct {
	Action string // make, change or delete
	Kind   string
	Name   string
	Fields []changedField `json:",omitempty"`

	path string
	etag string // of what is changed
}

// A changedField is a field with its values, unless they are secret.
type changedField struct {
	Field    string
	From, To *string `json:",omitempty"`

	name, value string
}

// A planner compares a manifest with a broker.
type planner struct {
	m       *penstock.Manager
	secrets bool // also those secrets are written that the broker has
	plan    plan
	unset   []string // variables that are needed and not set
}

// compare makes a plan. prune: it deletes what the lists of the manifest do not name.
func (p *planner) compare(ctx context.Context, m *manifest, prune bool) error {
	now := make([]*penstock.Resource, len(m.all)) // nil: there is none
	errs := make([]error, len(m.all))
	for from := 0; from < len(m.all); from += readers {
		var group sync.WaitGroup
		for i := from; i < min(from+readers, len(m.all)); i++ {
			group.Go(func() { now[i], errs[i] = p.read(ctx, m.all[i]) })
		}
		group.Wait()
		if err := errors.Join(errs[from:min(from+readers, len(m.all))]...); err != nil {
			return err
		}
	}
	for i, d := range m.all {
		p.resource(d, now[i])
	}
	if len(p.unset) > 0 {
		slices.Sort(p.unset)
		return local("nothing was done: these variables are not set: %s", strings.Join(slices.Compact(p.unset), ", "))
	}
	if prune {
		return p.prune(ctx, m)
	}
	return nil
}

func (p *planner) read(ctx context.Context, d declared) (*penstock.Resource, error) {
	path, err := d.kind.path(d.name)
	if err != nil {
		return nil, err
	}
	r, err := p.m.Get(ctx, path)
	if err != nil && isGone(err) {
		return nil, nil
	}
	return &r, err
}

// resource compares a resource with what the broker has.
func (p *planner) resource(d declared, r *penstock.Resource) {
	path, _ := d.kind.path(d.name) // it was read by it
	c := change{Action: "make", Kind: d.kind.noun, Name: d.name, path: path}
	now := map[string]string{}
	if r != nil {
		c.Action, c.etag = "change", r.ETag
		now = values(*r)
	}
	for _, x := range d.fields {
		from, known := now[x.key()]
		hidden := strings.Contains(from, "***") // the broker tells only that there is one
		switch {
		case x.variable != "" && r != nil && secrets[x.key()] && (hidden || x.key() == "token"):
			p.plan.kept++
		case x.variable != "":
			p.unset = append(p.unset, x.variable)
		case hidden && x.value == from, hidden && x.value != "" && !p.secrets:
			p.plan.kept++
		case r != nil && same(from, x.value), r != nil && x.key() == "token" && x.value == "":
		default:
			c.Fields = append(c.Fields, x.changed(from, known))
		}
	}
	if d.policy && r != nil {
		c.Fields = append(c.Fields, left(d, *r)...)
	}
	if len(c.Fields) > 0 || r == nil {
		p.plan.changes = append(p.plan.changes, c)
	}
}

// values are the fields of a resource as the broker shows them, by their names in small letters. A field of the policy
// that is inherited is not there.
func values(r penstock.Resource) map[string]string {
	all := map[string]string{}
	for name, raw := range r.More {
		all[strings.ToLower(name)] = (field{name, raw}).text()
	}
	for name, text := range own(r) {
		all[strings.ToLower(name)] = text
	}
	delete(all, "policy")
	if all["signed"] == "true" {
		all["publishsecret"] = "***"
	}
	return all
}

// changed is a setting that differs.
func (x *setting) changed(from string, known bool) changedField {
	f := changedField{Field: x.name, name: x.name, value: x.value}
	if x.inPolicy {
		f.Field = "policy." + x.name
	}
	if x.secret {
		return f
	}
	f.To = &x.text
	if known {
		f.From = &from
	}
	return f
}

// left are the fields that a consumer sets and its policy in the file does not: they go back to their defaults.
func left(d declared, r penstock.Resource) (all []changedField) {
	named := map[string]bool{"signingsecretprevious": true}
	for _, x := range d.fields {
		named[x.key()] = true
	}
	of, empty := own(r), ""
	for _, member := range slices.Sorted(maps.Keys(of)) {
		if key := strings.ToLower(member); !named[key] {
			f := changedField{Field: "policy." + formName(member), name: formName(member), To: &empty}
			if from := of[member]; !secrets[key] {
				f.From = &from
			}
			all = append(all, f)
		}
	}
	return all
}

// same reports whether two spellings are one value: durations and sizes have several.
func same(a, b string) bool {
	if a = strings.TrimSpace(a); a == strings.TrimSpace(b) {
		return true
	}
	split := func(r rune) bool { return strings.ContainsRune(",/: ", r) }
	as, bs := strings.FieldsFunc(a, split), strings.FieldsFunc(b, split)
	if len(as) != len(bs) || len(as) == 0 {
		return false
	}
	for i := range as {
		d, err := quantity.Duration(as[i])
		e, also := quantity.Duration(bs[i])
		n, noSize := quantity.Size(as[i], math.MaxInt64)
		m, nor := quantity.Size(bs[i], math.MaxInt64)
		if as[i] != bs[i] && (err != nil || also != nil || d != e) && (noSize != nil || nor != nil || n != m) {
			return false
		}
	}
	return true
}

// prune adds what the lists of the manifest do not name: first consumers, then what they need.
func (p *planner) prune(ctx context.Context, m *manifest) error {
	named := map[string]bool{}
	for _, d := range m.all {
		named[d.kind.noun+" "+d.name] = true
	}
	var found [4][]change // consumers, channels, producers, groups
	list := func(at int, k kind, path, before string) (names []string, err error) {
		return names, p.m.Each(ctx, path, nil, 0, func(raw json.RawMessage) error {
			var link string
			if err := json.Unmarshal(raw, &link); err != nil {
				return err
			}
			name := before + link[strings.LastIndexByte(link, '/')+1:]
			if !named[k.noun+" "+name] && !strings.HasPrefix(name, "~") {
				found[at] = append(found[at], change{Action: "delete", Kind: k.noun, Name: name, path: link})
				names = append(names, name)
			}
			return nil
		})
	}
	var emptied []string
	var err error
	if m.list["channels"] {
		emptied, err = list(1, channels, "/channels", "")
	}
	if err == nil && m.list["producers"] {
		_, err = list(2, producers, "/producers", "")
	}
	if err == nil && m.list["groups"] {
		_, err = list(3, groups, "/groups", "")
	}
	for _, d := range m.all {
		if d.kind.noun == channels.noun && m.list[d.name+"/consumers"] {
			emptied = append(emptied, d.name)
		}
	}
	for _, channel := range emptied {
		if err != nil {
			return err
		}
		_, err = list(0, consumers, penstock.ChannelPath(channel)+"/consumers", channel+"/")
		if isGone(err) { // the channel is not made yet
			err = nil
		}
	}
	p.plan.changes = slices.Concat(p.plan.changes, found[0], found[1], found[2], found[3])
	return err
}

// title is a change in a line.
func (c *change) title() string {
	return fmt.Sprintf("%s %s %s", map[string]string{"make": "+", "change": "~", "delete": "-"}[c.Action], c.Kind, c.Name)
}
