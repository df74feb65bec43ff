package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A manifest is a YAML file with producers, groups, channels and consumers, as export writes and apply reads it. JSON
// is YAML, too.
type manifest struct {
	all  []declared      // in the order in which they are made: groups before channels, consumers last
	list map[string]bool // the lists that the file has: producers, groups, channels, CHANNEL/consumers
}

// A declared resource is one of a manifest.
type declared struct {
	kind   kind
	name   string // as on the command line: CHANNEL/CONSUMER of a consumer
	fields []setting
	policy bool // the file has its policy, and that is all of it
}

// A setting is a field of a declared resource.
type setting struct {
	name     string // as the form of a PUT has it
	inPolicy bool
	text     string // as written, which is what is shown
	value    string
	variable string // that the text needs and that is not set; "": all are set
	secret   bool   // neither the text nor a value of the broker is shown
	line     int
}

func (x *setting) key() string { return strings.ToLower(x.name) }

// secrets are the fields whose values the broker shows to nobody, or to those who manage it only.
var secrets = map[string]bool{"token": true, "publishsecret": true, "signingsecret": true,
	"signingsecretprevious": true, "authorization": true}

// A manifestReader reads a manifest.
type manifestReader struct {
	m      *manifest
	getenv func(name string) (string, error)
	file   string
}

// readManifest reads a manifest. Its variables are read from the environment.
func (s *session) readManifest(file string) (*manifest, error) {
	if file == "" {
		return nil, wrong("the file is missing: -f FILE")
	}
	text, err := s.read(file)
	if err != nil {
		return nil, err
	}
	if file == "-" {
		file = "the standard input"
	}
	r := &manifestReader{m: &manifest{list: map[string]bool{}}, getenv: s.environment, file: file}
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); err != nil {
		return nil, r.unreadable(err)
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("it has more than one document")
		}
		return nil, r.unreadable(err)
	}
	if len(doc.Content) == 0 {
		return nil, r.unreadable(io.EOF)
	}
	// Consumers come last: what is made before them is what they need.
	var later []func() error
	err = r.members(doc.Content[0], "the file", func(key string, value *yaml.Node) error {
		k := producers
		switch key {
		case "producers":
		case "groups":
			k = groups
		case "channels":
			k = channels
		default:
			return r.at(value, "%q is no part of a manifest: there are producers, groups and channels", key)
		}
		r.m.list[key] = true
		return r.members(value, key, func(name string, of *yaml.Node) error { return r.resource(k, name, of, &later) })
	})
	for _, read := range later {
		if err == nil {
			err = read()
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.m.all, func(a, b declared) int { return first(b) - first(a) })
	return r.m, nil
}

// first is 1 for what is made before everything else.
func first(d declared) int {
	if d.kind.noun == groups.noun {
		return 1
	}
	return 0
}

// unreadable is an error of the parser without what it quotes, which may be a token.
func (r *manifestReader) unreadable(err error) error {
	if errors.Is(err, io.EOF) {
		return local("%s is empty", r.file)
	}
	return local("%s is no YAML: %s", r.file, quoted.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "..."))
}

func (r *manifestReader) at(n *yaml.Node, format string, args ...any) error {
	return local("%s, line %d: %s", r.file, n.Line, fmt.Sprintf(format, args...))
}

// members calls f with the members of a mapping. None at all is an empty one.
func (r *manifestReader) members(n *yaml.Node, what string, f func(key string, value *yaml.Node) error) error {
	n = behind(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return r.at(n, "%s must be a mapping", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := behind(n.Content[i])
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return r.at(key, "%s has a key that is no name", what)
		}
		if seen[key.Value] {
			return r.at(key, "%s has %q twice", what, key.Value)
		}
		seen[key.Value] = true
		if err := f(key.Value, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// behind is a node, or the one that it is an alias of.
func behind(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// resource reads a resource. The consumers of a channel are for later.
func (r *manifestReader) resource(k kind, name string, n *yaml.Node, later *[]func() error) error {
	d := declared{kind: k, name: name}
	if _, err := k.path(name); err != nil {
		return r.at(n, "%v", err)
	}
	err := r.members(n, k.noun+" "+name, func(key string, value *yaml.Node) error {
		switch {
		case key == "consumers" && k.noun == channels.noun:
			r.m.list[name+"/consumers"] = true
			*later = append(*later, func() error {
				return r.members(value, "consumers of "+name, func(consumer string, of *yaml.Node) error {
					if err := id("consumer", consumer); err != nil {
						return r.at(of, "%v", err)
					}
					return r.resource(consumers, name+"/"+consumer, of, nil)
				})
			})
			return nil
		case key == "policy" && k.noun == consumers.noun:
			d.policy = true
			return r.members(value, "the policy of "+name, func(key string, value *yaml.Node) error {
				return r.field(&d, key, value, true)
			})
		}
		return r.field(&d, key, value, false)
	})
	r.m.all = append(r.m.all, d)
	return err
}

// field reads one field of a resource: a scalar, or a list of them.
func (r *manifestReader) field(d *declared, name string, n *yaml.Node, inPolicy bool) error {
	n = behind(n)
	x := setting{name: name, inPolicy: inPolicy, line: n.Line, secret: secrets[strings.ToLower(name)]}
	for _, other := range d.fields {
		if other.key() == x.key() {
			return r.at(n, "%s has %q twice", d.name, name)
		}
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag != "!!null" {
			x.text = n.Value
		}
	case yaml.SequenceNode:
		var texts []string
		for _, one := range n.Content {
			if one = behind(one); one.Kind != yaml.ScalarNode {
				return r.at(one, "%s of %s must be a list of texts", name, d.name)
			}
			texts = append(texts, one.Value)
		}
		between := ","
		if x.key() == "headers" {
			between = "\n"
		}
		x.text = strings.Join(texts, between)
	default:
		return r.at(n, "%s of %s must be a text", name, d.name)
	}
	if x.secret && x.text == "generate" {
		return r.at(n, "%s of %s: a file generates nothing; write ${NAME}, or use broker ctl %s set", name, d.name,
			d.kind.noun)
	}
	err := r.expand(&x)
	if err != nil {
		return r.at(n, "%s of %s: %v", name, d.name, err)
	}
	d.fields = append(d.fields, x)
	return nil
}

var (
	quoted       = regexp.MustCompile(`'[^']*'|` + "`[^`]*`" + `|"[^"]*"`)
	variable     = regexp.MustCompile(`\$?\$\{[^}]*\}?`)
	variableName = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
)

// expand puts variables of the environment for ${NAME}. $${ is ${ itself.
func (r *manifestReader) expand(x *setting) (err error) {
	x.value = variable.ReplaceAllStringFunc(x.text, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			return found[1:]
		}
		name := variableName.FindStringSubmatch(found)
		if name == nil {
			err = errors.New("what begins with ${ must be a variable like ${NAME}; $${ is the text ${")
			return ""
		}
		text, e := r.getenv(name[1])
		switch {
		case e != nil:
			err = e
		case text == "":
			x.variable = name[1]
		}
		x.secret = true
		return text
	})
	return err
}

// escaped is a text that expand leaves as it is.
func escaped(text string) string { return strings.ReplaceAll(text, "${", "$${") }
