package scope

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Kind is the sort of a scope.
type Kind uint8

// The kinds of scopes.
const (
	Read     Kind = iota + 1 // management:read
	Write                    // management:write
	Channel                  // channel:X
	Consumer                 // consumer:X/K
	Dead                     // dlq
	Group                    // group:G
)

const (
	wordRead, wordWrite, wordDead = "management:read", "management:write", "dlq"
	prefixChannel, prefixConsumer = "channel:", "consumer:"
	prefixGroup                   = "group:"
)

// words are the forms that an error names.
var words = []string{wordRead, wordWrite, prefixChannel, prefixGroup, prefixConsumer, wordDead}

// A Scope is one thing that a token may do.
type Scope struct {
	Kind     Kind
	Channel  string // of the kinds Channel and Consumer
	Consumer string // of the kind Consumer
	Group    string // of the kind Group
}

// String returns the word that Parse reads.
func (s Scope) String() string {
	switch s.Kind {
	case Read:
		return wordRead
	case Write:
		return wordWrite
	case Channel:
		return prefixChannel + s.Channel
	case Consumer:
		return prefixConsumer + s.Channel + "/" + s.Consumer
	case Group:
		return prefixGroup + s.Group
	case Dead:
		return wordDead
	}
	return ""
}

// Most is the largest number of scopes of one token.
const Most = 20

// A Set is the scopes of one token: at least one, none twice, in the order of their words.
type Set []Scope

// Parse reads a scope. Its error names the scope that was probably meant.
func Parse(text string) (Scope, error) {
	switch text {
	case wordRead:
		return Scope{Kind: Read}, nil
	case wordWrite:
		return Scope{Kind: Write}, nil
	case wordDead:
		return Scope{Kind: Dead}, nil
	}
	if channel, ok := strings.CutPrefix(text, prefixChannel); ok {
		if !ident.ValidName(channel) {
			return Scope{}, fmt.Errorf("%q: after channel: comes the ID of one channel", cut(text))
		}
		return Scope{Kind: Channel, Channel: channel}, nil
	}
	if group, ok := strings.CutPrefix(text, prefixGroup); ok {
		if !ident.ValidName(group) {
			return Scope{}, fmt.Errorf("%q: after group: comes the ID of one group", cut(text))
		}
		return Scope{Kind: Group, Group: group}, nil
	}
	if pair, ok := strings.CutPrefix(text, prefixConsumer); ok {
		channel, consumer, ok := strings.Cut(pair, "/")
		if !ok || !ident.ValidName(channel) || !ident.ValidName(consumer) {
			return Scope{}, fmt.Errorf("%q: after consumer: comes CHANNEL/CONSUMER", cut(text))
		}
		return Scope{Kind: Consumer, Channel: channel, Consumer: consumer}, nil
	}
	return Scope{}, fmt.Errorf("%q is no scope%s", cut(text), suggestion(text))
}

// suggestion names the word that was probably meant, else all of them.
func suggestion(text string) string {
	head, _, parted := strings.Cut(text, ":")
	if parted {
		head += ":"
	}
	for _, meant := range []string{problem.Nearest(text, words), problem.Nearest(head, words)} {
		if meant != "" {
			return "; did you mean " + meant + "?"
		}
	}
	return "; the scopes are " + wordRead + ", " + wordWrite + ", channel:X, group:G, consumer:X/K and " + wordDead
}

// cut bounds what an error repeats.
func cut(text string) string { return text[:min(len(text), 64)] }

// ParseSet reads the scopes of a token.
func ParseSet(texts []string) (Set, error) {
	if len(texts) == 0 {
		return nil, errors.New("a token needs at least one scope")
	}
	if len(texts) > Most {
		return nil, fmt.Errorf("a token has at most %d scopes", Most)
	}
	var set Set
	for _, text := range texts {
		s, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(set, s) {
			set = append(set, s)
		}
	}
	slices.SortFunc(set, func(a, b Scope) int { return strings.Compare(a.String(), b.String()) })
	return set, nil
}

// Words returns the scopes as ParseSet reads them.
func (s Set) Words() []string {
	out := make([]string, len(s))
	for i, one := range s {
		out[i] = one.String()
	}
	return out
}

// String returns the words with a blank between each two.
func (s Set) String() string { return strings.Join(s.Words(), " ") }

// Has reports whether the set has a scope of that kind.
func (s Set) Has(k Kind) bool {
	return slices.ContainsFunc(s, func(one Scope) bool { return one.Kind == k })
}
