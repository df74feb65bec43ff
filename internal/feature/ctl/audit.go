package ctl

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

func (s *session) audit() *cobra.Command {
	return group("audit", "look at the audit log, and check it", s.listAudit(), s.verifyAudit(), s.exportAudit())
}

// An auditRange is which entries are meant.
type auditRange struct{ from, to, resource string }

func (r *auditRange) flags(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&r.from, "from", "", "only entries from that `TIME` on, RFC 3339")
	f.StringVar(&r.to, "to", "", "only entries before that `TIME`")
	f.StringVar(&r.resource, "resource", "", "only those of a `PATH` like channel/orders, and of what is below it")
	return c
}

// each calls f for each entry that is meant.
func (s *session) eachEntry(c *cobra.Command, r auditRange, order string, limit int, f func(raw json.RawMessage,
	v *apitype.AuditEntry) error) error {
	if err := timesOf(r.from, r.to); err != nil {
		return err
	}
	m, err := s.manager()
	if err != nil {
		return err
	}
	query := url.Values{"order": {order}}
	for name, value := range map[string]string{"from": r.from, "to": r.to, "resource": r.resource} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return m.Each(c.Context(), "/audit", query, limit, func(raw json.RawMessage) error {
		var v apitype.AuditEntry
		if err := json.Unmarshal(raw, &v); err != nil {
			return local("the answer of the broker cannot be read: %v", err)
		}
		return f(raw, &v)
	})
}

func (s *session) listAudit() *cobra.Command {
	var limit int
	var r auditRange
	return r.flags(listLimit(leaf{use: "ls", about: "list who changed what, the newest first",
		examples: "broker ctl audit ls\nbroker ctl audit ls --resource channel/orders --limit 10",
		run: func(c *cobra.Command, _ []string) error {
			t := s.table("NUMBER", "AT", "WHO", "FROM", "ACTION", "RESOURCE")
			err := s.eachEntry(c, r, "desc", limit, func(raw json.RawMessage, v *apitype.AuditEntry) error {
				t.row(raw, strconv.FormatUint(v.Number, 10), when(&v.At.Time), v.Who, v.From, v.Action, v.Resource)
				return t.err
			})
			if err != nil {
				return err
			}
			return t.print()
		}}.command(), &limit))
}

func (s *session) exportAudit() *cobra.Command {
	var r auditRange
	return r.flags(leaf{use: "export", about: "print the audit log, the oldest entry first",
		long: "Each line is a JSON object, also without --json. audit verify --file checks a file of all entries.",
		examples: "broker ctl audit export > audit.ndjson\n" +
			"broker ctl audit export --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z",
		run: func(c *cobra.Command, _ []string) error {
			return s.eachEntry(c, r, "asc", 0, func(raw json.RawMessage, _ *apitype.AuditEntry) error {
				return s.line(raw)
			})
		}}.command())
}

// A chainReport is what audit verify has found.
type chainReport struct {
	OK      bool
	Entries uint64
	Head    string `json:",omitempty"` // NUMBER:HASH of the last entry
	Broken  uint64 `json:",omitempty"` // number of the first entry that does not fit
	Problem string `json:",omitempty"`
}

func (s *session) verifyAudit() *cobra.Command {
	var head, file string
	c := leaf{use: "verify", about: "check that no entry of the audit log was changed or removed",
		long: "Each entry has the hash of itself and of the entry before it. The exit code is 2 where an entry does not\n" +
			"fit, and its number is printed. Somebody who may write to the store can make all hashes anew, or remove the\n" +
			"last entries: keep the head that this command prints elsewhere, and give it to --head the next time.",
		examples: "broker ctl audit verify\nbroker ctl audit verify --file audit.ndjson",
		run: func(c *cobra.Command, _ []string) error {
			known, err := readHead(head)
			if err != nil {
				return err
			}
			var v auditlog.Verifier
			check := func(shown *apitype.AuditEntry) error {
				e, err := shown.Entry()
				if err != nil {
					return &auditlog.Break{No: shown.Number, Why: "has no hash"}
				}
				if err := v.Next(&e); err != nil {
					return err
				}
				if e.No == known.No && e.Hash != known.Hash {
					return &auditlog.Break{No: e.No, Why: "is not the one whose hash was given"}
				}
				return nil
			}
			if file != "" {
				err = s.eachLine(file, check)
			} else {
				err = s.eachEntry(c, auditRange{}, "asc", 0, func(_ json.RawMessage, shown *apitype.AuditEntry) error {
					return check(shown)
				})
			}
			if no, _ := v.Head(); err == nil && no < known.No {
				err = &auditlog.Break{No: no + 1, Why: fmt.Sprintf("is missing: the log had %d entries", known.No)}
			}
			return s.verdictOf(&v, err)
		}}.command()
	c.Flags().StringVar(&head, "head", "", "`NUMBER:HASH` of an entry, as this command has printed it before")
	c.Flags().StringVar(&file, "file", "", "check a `FILE` of audit export, and no broker; - for stdin")
	return c
}

// readHead reads NUMBER:HASH.
func readHead(text string) (e auditlog.Entry, err error) {
	if text == "" {
		return e, nil
	}
	no, hash, ok := strings.Cut(text, ":")
	e.No, err = strconv.ParseUint(no, 10, 64)
	sum, err2 := hex.DecodeString(hash)
	if !ok || err != nil || err2 != nil || e.No == 0 || len(sum) != len(e.Hash) {
		return e, wrong("--head %q is no NUMBER:HASH", text)
	}
	copy(e.Hash[:], sum)
	return e, nil
}

// longestEntry bounds a line of an export: Before and After, and the rest.
const longestEntry = 2*auditlog.MostBytes + 64<<10

// eachLine calls f for the entries of an export.
func (s *session) eachLine(name string, f func(*apitype.AuditEntry) error) (err error) {
	in := s.Stdin
	if name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return local("%v", err)
		}
		defer func() { _ = opened.Close() }() // it is read alone
		in = opened
	}
	lines := bufio.NewReaderSize(in, longestEntry)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return local("line %d of %s cannot be read: %v", n, name, err)
		}
		var v apitype.AuditEntry
		if err := json.Unmarshal(line, &v); err != nil {
			return local("line %d of %s is no entry: %v", n, name, err)
		}
		if err := f(&v); err != nil {
			return err
		}
	}
}

// verdictOf says what was found.
func (s *session) verdictOf(v *auditlog.Verifier, err error) error {
	no, hash := v.Head()
	r := chainReport{OK: err == nil, Entries: no}
	if no > 0 {
		r.Head = fmt.Sprintf("%d:%x", no, hash)
	}
	at := (*auditlog.Break)(nil)
	if err != nil && !errors.As(err, &at) {
		return err
	}
	text := "the audit log is empty"
	switch {
	case at != nil:
		r.Broken, r.Problem = at.No, at.Error()
		text = "the audit log is broken: " + r.Problem
	case no > 0:
		text = fmt.Sprintf("%d entries are one chain; the head is %s", no, r.Head)
	}
	if err := s.done(r, "%s", text); err != nil {
		return err
	}
	if at != nil {
		return verdict(exitRefused)
	}
	return nil
}
