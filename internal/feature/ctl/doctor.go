package ctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// mostTroubled bounds the consumers of which an archive has the why and the causes of dead letters.
	mostTroubled = 50
	// mostConsumersShown bounds the consumers in it.
	mostConsumersShown = 1000
)

// A finding is what is not as it should be, with the page that explains it.
type finding struct{ Level, Text, Page string }

// An examination gathers what an archive has.
type examination struct {
	s        *session
	m        *penstock.Manager
	at       time.Time
	files    []examined
	findings []finding
}

// An examined file is one of an archive.
type examined struct {
	name string
	text []byte
}

func (s *session) doctor() *cobra.Command {
	var file string
	c := leaf{use: "doctor", about: "write one archive of what a broker shows, and say what is wrong",
		long: "The archive has findings, the settings without secrets, resources without tokens, headers and queries of\n" +
			"URLs, metrics, the history of an hour, and of consumers in trouble their why and the causes of their dead\n" +
			"letters. It has no payload. It quotes errors, which may quote what consumers have answered.",
		examples: "broker ctl doctor -o doctor.tar.gz\n" +
			"rm -f doctor.tar.gz && broker ctl doctor --json -o doctor.tar.gz",
		run: func(c *cobra.Command, _ []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			x := &examination{s: s, m: m, at: time.Now()}
			if file == "" {
				file = "penstock-doctor-" + x.at.UTC().Format("20060102-150405") + ".tar.gz"
			}
			if err := x.gather(c); err != nil {
				return err
			}
			if err := x.write(file); err != nil {
				return err
			}
			return x.say(file)
		}}.command()
	c.Flags().StringVarP(&file, "output", "o", "", "new `FILE` for the archive; penstock-doctor-TIME.tar.gz")
	return c
}

// gather asks the broker. What it does not answer is a finding; without any answer there is no archive.
func (x *examination) gather(c *cobra.Command) error {
	r := x.s.examine(c, checkBounds{})
	r.settle()
	for _, level := range []int{levelCritical, levelUnknown, levelWarning} {
		for _, text := range r.worst[level] {
			x.findings = append(x.findings, finding{levels[level], text, pageOf(text)})
		}
	}
	if _, _, _, err := x.m.Call(c.Context(), http.MethodGet, "/channels", nil, nil); err != nil {
		return err
	}
	for name, path := range map[string]string{"version.json": "/version", "readyz.json": "/readyz",
		"metrics.txt": "/metrics", "metrics-consumers.txt": "/metrics/consumers", "history.json": "/history",
		"settings.json": "/settings"} {
		_, _, text, err := x.m.Call(c.Context(), http.MethodGet, path, nil, nil)
		x.add(name, text, err)
		if name == "settings.json" && err == nil {
			x.findings = append(x.findings, advise(text)...)
		}
	}
	all, err := newExporter(x.m).all(c)
	if err == nil {
		var text []byte
		text, err = yaml.Marshal(discreet(all))
		x.add("resources.yaml", text, err)
	} else {
		x.add("resources.yaml", nil, err)
	}
	x.consumers(c.Context())
	return c.Context().Err()
}

// add adds a file, or what the broker said instead.
func (x *examination) add(name string, text []byte, err error) {
	if err != nil {
		x.findings = append(x.findings, finding{"UNKNOWN", name + " is missing: " + said(err), "docs/errors.md"})
		return
	}
	x.files = append(x.files, examined{name, text})
}

// discreet is a manifest without what may have a secret that the broker knows nothing of.
func discreet(of mapping) mapping {
	for key, value := range of {
		switch value := value.(type) {
		case mapping:
			discreet(value)
		case string:
			switch {
			case key == "headers" && value != "":
				of[key] = "(left out)"
			case strings.Contains(value, "://"):
				of[key] = withoutQuery(value)
			}
		}
	}
	return of
}

func withoutQuery(text string) string {
	before, _, ok := strings.Cut(text, "?")
	if ok {
		return before + "?(left out)"
	}
	return text
}

// consumers adds the consumers, and more of those in trouble.
func (x *examination) consumers(ctx context.Context) {
	var all, troubled bytes.Buffer
	n := 0
	err := x.m.Each(ctx, "/consumers", nil, mostConsumersShown, func(raw json.RawMessage) error {
		var k listedConsumer
		var members map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(raw, &k), json.Unmarshal(raw, &members)); err != nil {
			return err
		}
		for _, secret := range []string{"Token", "Policy", "CallbackURL"} { // resources.yaml has what may be shown
			delete(members, secret)
		}
		line, err := json.Marshal(members)
		if err != nil {
			return err
		}
		all.Write(append(line, '\n'))
		if !k.waits() {
			return nil
		}
		if n++; n <= mostTroubled {
			x.trouble(ctx, &troubled, penstock.ConsumerPath(k.ChannelID, k.ID), k.ChannelID+"/"+k.ID)
		}
		return nil
	})
	x.add("consumers.ndjson", all.Bytes(), err)
	x.add("trouble.ndjson", troubled.Bytes(), nil)
	if n > mostTroubled {
		x.findings = append(x.findings, finding{"OK", fmt.Sprintf("%d consumers have jobs or dead letters; the archive has "+
			"the why of %d", n, mostTroubled), "docs/why.md"})
	}
}

// trouble adds the why of a consumer, and the causes of its dead letters.
func (x *examination) trouble(ctx context.Context, to *bytes.Buffer, path, name string) {
	line := map[string]any{"Consumer": name}
	for member, route := range map[string]string{"Why": "/why", "DeadGroups": "/dlq/groups"} {
		var raw json.RawMessage
		if err := x.m.Read(ctx, path+route, nil, &raw); err != nil {
			line[member] = map[string]string{"Error": said(err)}
			continue
		}
		line[member] = raw
		var w penstock.Why
		if member == "Why" && json.Unmarshal(raw, &w) == nil {
			for _, reason := range w.Reasons {
				x.findings = append(x.findings, finding{"WARNING", name + ": " + reason.Code + ": " + reason.Detail, "docs/why.md"})
			}
		}
	}
	text, err := json.Marshal(line)
	if err == nil {
		to.Write(append(text, '\n'))
	}
}

// pages are what explains a finding of check, by words that it has.
var pages = [][2]string{{"dead letters", "docs/deadletters.md"}, {"the oldest job", "docs/operate/it-is-late.md"},
	{"Redis", "docs/operate/after-an-outage.md"}, {"is DEAD", "docs/operate/it-fails.md"},
	{"is GONE", "docs/operate/it-fails.md"}, {"not ready", "docs/operate/nothing-arrives.md"}}

func pageOf(text string) string {
	for _, p := range pages {
		if strings.Contains(text, p[0]) {
			return p[1]
		}
	}
	return "docs/operating.md"
}

// write writes the archive to a file that there is not yet, for nobody else to read.
func (x *examination) write(file string) (err error) {
	var found strings.Builder
	fmt.Fprintf(&found, "%s, %s\n\n", x.s.target.URL, x.at.UTC().Format(time.RFC3339))
	for _, f := range x.findings {
		fmt.Fprintf(&found, "%s  %s\n    %s\n", f.Level, plain(f.Text), f.Page)
	}
	if len(x.findings) == 0 {
		found.WriteString("Nothing was found.\n")
	}
	x.files = append(x.files, examined{"findings.txt", []byte(found.String())})
	slices.SortFunc(x.files, func(a, b examined) int { return strings.Compare(a.name, b.name) })
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return local("there is a file %s already", file)
	}
	if err != nil {
		return local("%v", err)
	}
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, f := range x.files {
		head := &tar.Header{Name: "penstock-doctor/" + f.name, Mode: 0o600, Size: int64(len(f.text)),
			ModTime: x.at.Truncate(time.Second)}
		if err == nil {
			err = archive.WriteHeader(head)
		}
		if err == nil {
			_, err = archive.Write(f.text)
		}
	}
	if err = errors.Join(err, archive.Close(), zipped.Close(), out.Close()); err != nil {
		return local("%v", errors.Join(err, os.Remove(file)))
	}
	return nil
}

// say prints the findings.
func (x *examination) say(file string) error {
	if x.s.json {
		if x.findings == nil {
			x.findings = []finding{}
		}
		return x.s.line(map[string]any{"File": file, "Findings": x.findings})
	}
	for _, f := range x.findings {
		if err := x.s.done(nil, "%s  %s (%s)", f.Level, f.Text, f.Page); err != nil {
			return err
		}
	}
	return x.s.done(nil, "%s has %d files and %d findings", file, len(x.files), len(x.findings))
}
