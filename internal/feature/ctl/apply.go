package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// planFlags are those of diff and apply.
type planFlags struct {
	file           string
	prune, secrets bool
	confirmed      string
}

func (o *planFlags) of(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVarP(&o.file, "file", "f", "", "`FILE` that export has written, or one like it; - is the standard input")
	f.BoolVar(&o.prune, "prune", false, "delete what the lists of the file do not name")
	f.BoolVar(&o.secrets, "secrets", false, "write also secrets that the broker has, and shows to nobody")
	return c
}

// plan compares the file with the broker.
func (o *planFlags) plan(s *session, c *cobra.Command) (plan, *penstock.Manager, error) {
	wanted, err := s.readManifest(o.file)
	if err != nil {
		return plan{}, nil, err
	}
	m, err := s.manager()
	if err != nil {
		return plan{}, nil, err
	}
	p := planner{m: m, secrets: o.secrets}
	err = p.compare(c.Context(), wanted, o.prune)
	return p.plan, m, err
}

func (s *session) diff() *cobra.Command {
	var o planFlags
	return o.of(leaf{use: "diff -f FILE", about: "show what apply would change",
		long: "The exit code is 4 where there is something. A field that the file does not name stays as it is, but the\n" +
			"policy of a consumer is whole: what is not in it goes back to its default. Secrets cannot be compared.",
		examples: "broker ctl export > broker.yaml && broker ctl diff -f broker.yaml",
		run: func(c *cobra.Command, _ []string) error {
			p, _, err := o.plan(s, c)
			if err != nil {
				return err
			}
			for _, one := range p.changes {
				if err := s.showChange(one); err != nil {
					return err
				}
			}
			if !s.json {
				fmt.Fprintf(s.Stdout, "%d changes%s\n", len(p.changes), p.unseen())
			}
			if len(p.changes) > 0 {
				return verdict(exitDifferent)
			}
			return nil
		}}.command())
}

// unseen says what a plan has not compared.
func (p *plan) unseen() string {
	if p.kept == 0 {
		return ""
	}
	return fmt.Sprintf("; %d tokens and secrets stay: their variables are not set, or the broker does not show them",
		p.kept)
}

// showChange prints a change.
func (s *session) showChange(c change) error {
	if s.json {
		return s.line(c)
	}
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, plain(c.title()))
	for _, f := range c.Fields {
		text := "(not shown)"
		switch {
		case f.To != nil && *f.To == "" && f.From != nil:
			text = shortened(*f.From) + " -> its default"
		case f.To != nil && *f.To == "":
			text = "-> its default"
		case f.To != nil && f.From != nil:
			text = shortened(*f.From) + " -> " + shortened(*f.To)
		case f.To != nil:
			text = shortened(*f.To)
		}
		fmt.Fprintf(w, "    %s\t%s\n", plain(f.Field), plain(text))
	}
	return w.Flush()
}

// shortened is a value for people.
func shortened(text string) string {
	const most = 120
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}

func (s *session) apply() *cobra.Command {
	var o planFlags
	c := o.of(leaf{use: "apply -f FILE", about: "make a broker as a file says",
		long: "It makes and changes groups, producers, channels, then consumers, and ends at the first refusal. To run it\n" +
			"again is safe: it compares anew. With --prune it deletes at last what the lists of the file do not name; a\n" +
			"list that is not in the file is left alone.",
		examples: "broker ctl export > broker.yaml && broker ctl apply -f broker.yaml\n" +
			"broker ctl export > broker.yaml && broker ctl apply -f broker.yaml --prune",
		run: func(c *cobra.Command, _ []string) error {
			p, m, err := o.plan(s, c)
			if err == nil && o.prune && len(p.changes) > 0 {
				err = s.confirm("prune", s.target.profile, o.confirmed)
			}
			if err != nil {
				return err
			}
			for i, one := range p.changes {
				if err := one.do(c, m); err != nil {
					return stopped(one, i, len(p.changes), err)
				}
				if err := s.showChange(one); err != nil {
					return err
				}
			}
			if s.json {
				return nil
			}
			_, err = fmt.Fprintf(s.Stdout, "%d changes are done%s\n", len(p.changes), p.unseen())
			return err
		}}.command())
	c.Flags().StringVar(&o.confirmed, "confirm", "", "`NAME` of the profile, where it asks for it before it prunes")
	return c
}

// stopped is the error of a change with what was done before.
func stopped(c change, done, of int, err error) error {
	text := fmt.Sprintf("%s %s: %s; %d of %d changes were done before", c.Kind, c.Name, said(err), done, of)
	return &stoppedError{text, err}
}

// do asks the broker for a change, unless the resource has changed since it was read.
func (c *change) do(of *cobra.Command, m *penstock.Manager) error {
	if c.Action == "delete" {
		return deleted(of.Context(), m, c.path)
	}
	fields := map[string]string{}
	for _, f := range c.Fields {
		fields[f.name] = f.value
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	h := http.Header{"Content-Type": {"application/json"}}
	if c.Action == "make" {
		h.Set("If-None-Match", "*")
	} else if c.etag != "" {
		h.Set("If-Match", c.etag)
	}
	_, _, _, err = m.Call(of.Context(), http.MethodPut, c.path, h, body)
	return err
}
