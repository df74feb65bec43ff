// Package seedfile reads the INI file that names a broker's first producers,
// channels and consumers, so that configuration management can create them:
//
//	[initial-groups]           ; group ID = name
//	[initial-channels]         ; channel ID = name
//	[initial-channel-groups]   ; channel ID = ID of its group
//	[initial-producers]        ; producer ID = name
//	[initial-consumers]        ; consumer ID = callback URL, may be empty for pull
//	[initial-channel-tokens]   ; channel ID = token
//	[initial-producer-tokens]  ; producer ID = token
//	[consumer-id]              ; one section per consumer
//	token=...
//	channel=...
//	type=push                  ; or pull; push when absent or empty
//
// The broker creates only the resources that the file names. A new resource without a token
// gets a random one.
package seedfile

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sort"
	"strings"

	"gopkg.in/ini.v1"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Resource is a producer, a channel or a group, which has no token. An empty token means that the file names none.
type Resource struct {
	ID, Name, Token string
	Group           string // of a channel: the group that it carries; "": the file names none
}

// A Consumer of a channel.
type Consumer struct {
	ID, Channel, Token, CallbackURL string
	Type                            durable.ConsumerType
}

// A Seed contains the resources that a file names, in the order of the file.
type Seed struct {
	Producers, Channels, Groups []Resource
	Consumers                   []Consumer
}

// A Warning names an entry that Parse left out, and the reason. It contains IDs and no
// tokens.
type Warning string

const (
	channelSection       = "initial-channels"
	producerSection      = "initial-producers"
	consumerSection      = "initial-consumers"
	groupSection         = "initial-groups"
	channelGroupSection  = "initial-channel-groups"
	noSection            = "" // of the tokens of groups, which have none
	channelTokenSection  = "initial-channel-tokens"
	producerTokenSection = "initial-producer-tokens"
)

// A SyntaxError names the lines of a file that are no INI. It does not quote them, because they may
// contain a token.
type SyntaxError struct{ Lines []int }

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("seedfile: line %d is neither [section] nor key=value, nor a comment", e.Lines[0])
}

// consumerMembers are the members of a consumer's section.
var consumerMembers = []string{"token", "channel", "type"}

// Parse reads a seed file. It leaves out an entry with a mistake and returns a warning for
// it. Only text that is no INI file is an error, a *SyntaxError.
func Parse(text []byte) (Seed, []Warning, error) {
	file, err := load(text)
	if err != nil { // err quotes the line
		return Seed{}, nil, &SyntaxError{badLines(text)}
	}
	file.ValueMapper = nil
	p := parser{file: file}
	s := Seed{
		Channels:  p.resources(channelSection, channelTokenSection),
		Producers: p.resources(producerSection, producerTokenSection),
		Groups:    p.resources(groupSection, noSection),
	}
	p.carry(s.Channels)
	s.Consumers = p.consumers()
	return s, p.warnings, nil
}

// Values returns the values of a file, "" for one that is not there.
func Values(text []byte) (func(section, key string) string, error) {
	file, err := load(text)
	if err != nil {
		return nil, &SyntaxError{badLines(text)}
	}
	file.ValueMapper = nil
	p := parser{file: file}
	return p.value, nil
}

func load(text []byte) (*ini.File, error) {
	return ini.LoadSources(ini.LoadOptions{
		IgnoreInlineComment:     true, // a # or ; inside a URL or a token is part of it
		IgnoreContinuation:      true,
		PreserveSurroundedQuote: true,
		KeyValueDelimiters:      "=", // an ID may contain a colon
		// [a.b] must not inherit the token of [a]. No section name contains a newline.
		ChildSectionDelimiter: "\n",
		Insensitive:           false,
	}, text)
}

// maxBadLines bounds the lines that a SyntaxError names.
const maxBadLines = 20

// badLines returns the numbers of the first lines that are no INI: load accepts the lines before one,
// without those found earlier, and refuses them together with it.
func badLines(text []byte) (found []int) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for len(found) < maxBadLines {
		n := sort.Search(len(lines), func(n int) bool {
			_, err := load(bytes.Join(lines[:n+1], nil))
			return err != nil
		})
		if n == len(lines) {
			break
		}
		found = append(found, n+1)
		lines[n] = []byte("\n")
	}
	return found
}

type parser struct {
	file     *ini.File
	warnings []Warning
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, Warning(fmt.Sprintf(format, args...)))
}

func (p *parser) resources(section, tokens string) []Resource {
	var out []Resource
	named := map[string]bool{}
	for _, key := range p.keys(section) {
		id := key.Name()
		if !ident.ValidName(id) {
			p.warn("[%s] %q is no valid ID; not created", section, id)
			continue
		}
		if ident.Reserved(id) {
			p.warn("[%s] %q begins with ~, which belongs to the broker; not created", section, id)
			continue
		}
		r := Resource{ID: id, Name: key.Value(), Token: p.value(tokens, id)}
		if !ValidToken(r.Token) {
			p.warn("[%s] the token of %s is not 1 to 255 visible ASCII characters; %s is not created", tokens, id, id)
			continue
		}
		named[id] = true
		out = append(out, r)
	}
	for _, key := range p.keys(tokens) {
		if !named[key.Name()] {
			p.warn("[%s] names %q, which [%s] does not", tokens, key.Name(), section)
		}
	}
	return out
}

// carry gives channels the groups that the file names.
func (p *parser) carry(channels []Resource) {
	for _, key := range p.keys(channelGroupSection) {
		id, group := key.Name(), key.Value()
		at := slices.IndexFunc(channels, func(r Resource) bool { return r.ID == id })
		switch {
		case at < 0:
			p.warn("[%s] names %q, which [%s] does not", channelGroupSection, id, channelSection)
		case !ident.ValidName(group):
			p.warn("[%s] %q is no valid ID of a group; channel %s carries none", channelGroupSection, group, id)
		default:
			channels[at].Group = group
		}
	}
}

func (p *parser) consumers() []Consumer {
	var out []Consumer
	for _, key := range p.keys(consumerSection) {
		c := Consumer{ID: key.Name(), CallbackURL: key.Value(), Channel: p.value(key.Name(), "channel"),
			Token: p.value(key.Name(), "token")}
		p.checkMembers(c.ID)
		switch kind := p.value(c.ID, "type"); kind {
		case "", "push":
		case "pull":
			c.Type = durable.Pull
		default:
			p.warn("consumer %s: type %q is neither push nor pull; not created", c.ID, kind)
			continue
		}
		switch {
		case !ident.ValidName(c.ID):
			p.warn("[%s] %q is no valid ID; not created", consumerSection, c.ID)
		case ident.Reserved(c.ID):
			p.warn("[%s] %q begins with ~, which belongs to the broker; not created", consumerSection, c.ID)
		case !ident.ValidName(c.Channel):
			p.warn("consumer %s: its section names no channel; not created", c.ID)
		case !ValidToken(c.Token):
			p.warn("consumer %s: its token is not 1 to 255 visible ASCII characters; not created", c.ID)
		case c.Type == durable.Push && c.CallbackURL == "":
			p.warn("consumer %s: a push consumer needs a callback URL; not created", c.ID)
		default:
			out = append(out, c)
		}
	}
	return out
}

// checkMembers warns of members of a consumer's section that mean nothing.
func (p *parser) checkMembers(section string) {
	for _, key := range p.keys(section) {
		if name := key.Name(); !slices.Contains(consumerMembers, name) {
			meant := ""
			if best := problem.Nearest(name, consumerMembers); best != "" {
				meant = "; did you mean " + best + "?"
			}
			p.warn("consumer %s: its section has a member %q, which is ignored: there are %s%s", section, name,
				strings.Join(consumerMembers, ", "), meant)
		}
	}
}

func (p *parser) keys(section string) []*ini.Key {
	if section == noSection { // the library takes it for what is before the first section
		return nil
	}
	s, err := p.file.GetSection(section)
	if err != nil {
		return nil
	}
	return s.Keys()
}

func (p *parser) value(section, key string) string {
	if section == noSection {
		return ""
	}
	s, err := p.file.GetSection(section)
	if err != nil || !s.HasKey(key) {
		return ""
	}
	return s.Key(key).Value()
}

// ValidToken reports whether a text may be a token. It may be empty: Apply creates a random one then.
func ValidToken(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return len(s) <= 255
}

// A Store is the part of durable.Store that Apply writes to.
type Store interface {
	Changes(ctx context.Context, after int64) (durable.Changes, error)
	PutProducer(ctx context.Context, p durable.Put) (durable.Producer, bool, error)
	PutGroup(ctx context.Context, p durable.Put) (durable.Group, bool, error)
	PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error)
	PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error)
}

// Apply creates and updates the resources of the seed. It does not write a resource that is
// stored with the same values, so a restart with the same file changes nothing.
func Apply(ctx context.Context, store Store, seed Seed) error {
	stored, err := store.Changes(ctx, 0)
	if err != nil {
		return fmt.Errorf("seedfile: read the stored resources: %w", err)
	}
	producers := map[string]durable.Producer{}
	for _, p := range stored.Producers {
		if !p.Deleted {
			producers[p.ID] = p
		}
	}
	channels, channelIDs := map[string]durable.Channel{}, map[uint32]string{}
	for _, c := range stored.Channels {
		if !c.Deleted {
			channels[c.ID], channelIDs[c.No] = c, c.ID
		}
	}
	consumers := map[[2]string]durable.Consumer{}
	for _, k := range stored.Consumers {
		if !k.Deleted() {
			consumers[[2]string{channelIDs[k.ChannelNo], k.ID}] = k
		}
	}
	for _, r := range seed.Producers {
		if old, ok := producers[r.ID]; ok && same(r, old.Name, old.Token) {
			continue
		}
		if _, _, err := store.PutProducer(ctx, put(r)); err != nil {
			return fmt.Errorf("seedfile: producer %s: %w", r.ID, err)
		}
	}
	if err := applyGroups(ctx, store, seed.Groups, stored.Groups); err != nil {
		return err
	}
	for _, r := range seed.Channels {
		if old, ok := channels[r.ID]; ok && same(r, old.Name, old.Token) && (r.Group == "" || r.Group == old.Group) {
			continue
		}
		if _, _, err := store.PutChannel(ctx, put(r)); err != nil {
			return fmt.Errorf("seedfile: channel %s: %w", r.ID, err)
		}
	}
	for _, c := range seed.Consumers {
		if old, ok := consumers[[2]string{c.Channel, c.ID}]; ok && (c.Token == "" || c.Token == old.Token) &&
			c.Type == old.Type && (c.CallbackURL == "" || c.CallbackURL == old.CallbackURL) {
			continue
		}
		p := durable.ConsumerPut{Put: put(Resource{ID: c.ID, Token: c.Token}), ChannelID: c.Channel, Type: &c.Type}
		if c.CallbackURL != "" {
			p.CallbackURL = &c.CallbackURL
		}
		if _, _, err := store.PutConsumer(ctx, p); err != nil {
			return fmt.Errorf("seedfile: consumer %s of channel %s: %w", c.ID, c.Channel, err)
		}
	}
	return nil
}

// applyGroups creates and updates groups, before the channels that carry them.
func applyGroups(ctx context.Context, store Store, named []Resource, stored []durable.Group) error {
	for _, r := range named {
		known := slices.ContainsFunc(stored, func(g durable.Group) bool {
			return !g.Deleted && g.ID == r.ID && same(r, g.Name, "")
		})
		if known {
			continue
		}
		if _, _, err := store.PutGroup(ctx, put(r)); err != nil {
			return fmt.Errorf("seedfile: group %s: %w", r.ID, err)
		}
	}
	return nil
}

func same(r Resource, name, token string) bool {
	return (r.Name == "" || r.Name == name) && (r.Token == "" || atrest.Same(token, r.Token))
}

func put(r Resource) durable.Put {
	p := durable.Put{ID: r.ID, NewToken: rand.Text()}
	if r.Name != "" {
		p.Name = &r.Name
	}
	if r.Token != "" {
		p.Token = &r.Token
	}
	if r.Group != "" {
		p.Group = &r.Group
	}
	return p
}
