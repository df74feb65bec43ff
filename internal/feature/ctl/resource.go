package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A kind is a kind of resource: its commands are the same, as far as the broker has them for it.
type kind struct {
	noun, argument, example string
	list                    func(s *session) *cobra.Command
	path                    func(name string) (string, error) // of a resource by its name on the command line
	verbs                   []verb
	set                     string // examples of set
}

// A verb is a request about one resource.
type verb struct {
	name, about string
	destroys    bool
	flags       func(c *cobra.Command)
	// run returns what a program gets, and a sentence for people.
	run func(c *cobra.Command, m *penstock.Manager, path, name string) (object any, sentence string, err error)
}

// plainVerb is a verb whose request has no parameters.
func plainVerb(name, about, done string, request func(m *penstock.Manager, c *cobra.Command, path string) error) verb {
	return verb{name: name, about: about, run: func(c *cobra.Command, m *penstock.Manager, path, of string) (any, string,
		error) {
		return map[string]any{"Name": of, "Done": done}, of + " is " + done, request(m, c, path)
	}}
}

var (
	pause = func(about string) verb {
		return plainVerb("pause", about, "paused", func(m *penstock.Manager, c *cobra.Command, path string) error {
			return m.Pause(c.Context(), path)
		})
	}
	resume = func(about string) verb {
		return plainVerb("resume", about, "resumed", func(m *penstock.Manager, c *cobra.Command, path string) error {
			return m.Resume(c.Context(), path)
		})
	}
	remove = func(about string) verb {
		v := plainVerb("rm", about, "deleted", func(m *penstock.Manager, c *cobra.Command, path string) error {
			return deleted(c.Context(), m, path)
		})
		v.destroys = true
		return v
	}
)

// deleted deletes a resource.
func deleted(ctx context.Context, m *penstock.Manager, path string) error {
	err := m.Delete(ctx, path)
	var e *penstock.Error
	if errors.As(err, &e) && e.Code == "method_not_allowed" {
		e.Detail = "This broker deletes nothing by request: BROKER_ALLOW_DELETE is off."
	}
	return err
}

// resource makes the commands of a kind.
func (s *session) resource(k kind) *cobra.Command {
	all := []*cobra.Command{k.list(s), s.showOne(k), s.setOne(k)}
	for _, v := range k.verbs {
		all = append(all, s.act(k, v))
	}
	return group(k.noun, "list, show and change "+k.noun+"s", all...)
}

// one returns the manager and the path of the resource that an argument names.
func (s *session) one(k kind, name string) (m *penstock.Manager, path string, err error) {
	if path, err = k.path(name); err == nil {
		m, err = s.manager()
	}
	return m, path, err
}

func (s *session) showOne(k kind) *cobra.Command {
	return leaf{use: "show " + k.argument, about: "show a " + k.noun,
		long:     "Without --json its token is not shown, and of a policy only what the " + k.noun + " sets itself.",
		examples: fmt.Sprintf("broker ctl %s show %s\nbroker ctl --json %[1]s show %[2]s", k.noun, k.example),
		least:    1, most: 1, complete: s.names(k), run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(k, args[0])
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := m.Read(c.Context(), path, nil, &raw); err != nil {
				return err
			}
			return s.showResource(raw)
		}}.command()
}

// showResource prints a resource without its secrets, and without what it inherits.
func (s *session) showResource(raw json.RawMessage) error {
	var of struct{ Inherited []string }
	_ = json.Unmarshal(raw, &of) // no resource but a consumer has it
	inherited := map[string]bool{}
	for _, name := range of.Inherited {
		inherited[name] = true
	}
	return s.show(raw, func(f field) (lines []string, known bool) {
		switch f.name {
		case "Token":
			return []string{"(--json shows it)"}, true
		case "Inherited":
			return nil, true
		case "Policy":
			members, err := fieldsOf(f.value)
			if err != nil {
				return nil, false
			}
			for _, member := range members {
				if !inherited[member.name] {
					lines = append(lines, member.name+" = "+member.text())
				}
			}
			return append(lines, fmt.Sprintf("(%d fields are inherited)", len(inherited))), true
		}
		return nil, false
	})
}

func (s *session) setOne(k kind) *cobra.Command {
	var file string
	c := leaf{use: "set " + k.argument + " [FIELD=VALUE ...]", about: "change a " + k.noun + ", or make it",
		long: "The fields are those of docs/fields.md. One without a value goes back to its default; those that are\n" +
			"not named keep theirs. What show --json prints can be set with -f.",
		examples: k.set, least: 1, most: -1, complete: s.names(k), run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(k, args[0])
			if err != nil {
				return err
			}
			var r penstock.Resource
			var created bool
			if file != "" {
				if len(args) > 1 {
					return wrong("-f and FIELD=VALUE are two descriptions")
				}
				text, err := s.read(file)
				if err != nil {
					return err
				}
				r, created, err = m.PutJSON(c.Context(), path, text)
				if err != nil {
					return err
				}
				return s.put(k, args[0], r, created)
			}
			fields := penstock.Fields{}
			for _, text := range args[1:] {
				name, value, ok := strings.Cut(text, "=")
				if _, twice := fields[name]; !ok || name == "" || twice {
					return wrong("%q is no FIELD=VALUE of its own", text)
				}
				fields[name] = value
			}
			if r, created, err = m.Put(c.Context(), path, fields); err != nil {
				return err
			}
			return s.put(k, args[0], r, created)
		}}.command()
	c.Flags().StringVarP(&file, "file", "f", "", "`FILE` with a JSON object instead of fields; - is the standard input")
	return c
}

// put says what a PUT did.
func (s *session) put(k kind, name string, r penstock.Resource, created bool) error {
	if s.json {
		return s.line(r.More)
	}
	did := "changed"
	if created {
		did = "made"
	}
	return s.done(nil, "the %s %s is %s", k.noun, name, did)
}

// act makes the command of a verb.
func (s *session) act(k kind, v verb) *cobra.Command {
	var confirmed string
	c := leaf{use: v.name + " " + k.argument, about: v.about,
		examples: fmt.Sprintf("broker ctl %s %s %s", k.noun, v.name, k.example), least: 1, most: 1, complete: s.names(k),
		run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(k, args[0])
			if err == nil && v.destroys {
				err = s.confirm(v.name, args[0], confirmed)
			}
			if err != nil {
				return err
			}
			object, sentence, err := v.run(c, m, path, args[0])
			if err != nil {
				return err
			}
			return s.done(object, "%s", sentence)
		}}.command()
	if v.flags != nil {
		v.flags(c)
	}
	if v.destroys {
		c.Flags().StringVar(&confirmed, "confirm", "", "`NAME` of what goes, where the profile asks for it")
	}
	return c
}

// confirm asks for the name of what a command destroys, if the profile is a dangerous one.
func (s *session) confirm(verb, name, given string) error {
	if !s.target.dangerous {
		return nil
	}
	if given == "" {
		fmt.Fprintf(s.Stderr, "The profile %s is dangerous. Type %s to %s it: ", s.target.profile, plain(name), verb)
		line, err := bufio.NewReader(io.LimitReader(s.Stdin, 1<<10)).ReadString('\n')
		if err != nil && err != io.EOF {
			return local("nothing was done: %v", err)
		}
		given = strings.TrimSpace(line)
	}
	if given != name {
		return local("nothing was done: the profile %s asks for the name %s", s.target.profile, name)
	}
	return nil
}

// mostRead bounds a file that is sent, in bytes. A broker takes smaller ones (BROKER_MAX_BODY).
const mostRead = 64 << 20

// read reads a file; - is the standard input.
func (s *session) read(file string) ([]byte, error) {
	in := s.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, local("%v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, mostRead+1))
	switch {
	case err != nil:
		return nil, local("%s: %v", file, err)
	case len(text) > mostRead:
		return nil, local("%s has more than %d bytes", file, mostRead)
	}
	return text, nil
}

// id refuses a name that is no ID, before it becomes a part of a path.
func id(what, name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.Contains(name, "/") {
		return wrong("%q is no %s", name, what)
	}
	return nil
}
