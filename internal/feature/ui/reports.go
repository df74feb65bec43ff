package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	// mostReports bounds the reports of the list, mostEntries the files of the folder that are looked at, and
	// mostReport a report, bytes.
	mostReports, mostEntries = 50, 2000
	mostReport               = 16 << 20
	// mostName bounds the name of a file, bytes.
	mostName = 255
)

// A report of bench begins with reportBegin, has reportTitle in its first reportHead bytes, and its data between
// dataBegin and dataEnd, as package bench writes it.
const (
	reportHead  = 1 << 10
	reportBegin = "<!doctype html>\n<html lang=\"en\">"
	reportTitle = "<title>Penstock bench: "
	dataBegin   = `<pre id="report">`
	dataEnd     = "</pre>"
)

// reports are those of a folder: its regular files that begin as a report does. It is safe for concurrent use.
type reports struct {
	folder string

	mu    sync.Mutex        // one file is read at a time
	known map[string]report // files that were read, by name
}

// A report is a file, and what it says.
type report struct {
	Name string
	At   time.Time // when the file was written
	Size int64
	Is   bool // it is a report
	found
}

// A found is what a report says.
type found struct {
	Said    string // what was measured, and what came out
	Verdict string // whether the promises were kept; "": nobody has checked that
	Bad     bool   // a promise was broken
}

// open opens a report. A link is none, whatever it leads to, and neither is anything else but a regular file: opening
// a pipe would wait for whoever writes into it.
func (rs *reports) open(name string) (f *os.File, size int64, err error) {
	if rs.folder == "" || !fileName(name) {
		return nil, 0, errNoReport
	}
	root, err := os.OpenRoot(rs.folder)
	if err != nil {
		return nil, 0, folderError(err)
	}
	defer func() { _ = root.Close() }()
	before, err := root.Lstat(name)
	if err != nil || !before.Mode().IsRegular() || before.Size() > mostReport {
		return nil, 0, errNoReport
	}
	if f, err = root.Open(name); err != nil {
		return nil, 0, errNoReport
	}
	now, err := f.Stat()
	if err != nil || !os.SameFile(before, now) || now.Size() > mostReport || !begins(f) {
		_ = f.Close()
		return nil, 0, errNoReport
	}
	return f, now.Size(), nil
}

// begins reports whether a file begins as a report does. It leaves the file at its begin.
func begins(f *os.File) bool {
	head := make([]byte, reportHead)
	n, err := f.ReadAt(head, 0)
	head = head[:n]
	return (err == nil || errors.Is(err, io.EOF)) && bytes.HasPrefix(head, []byte(reportBegin)) &&
		bytes.Contains(head, []byte(reportTitle))
}

// fileName reports whether a name is that of a file in the folder itself, which a page can show.
func fileName(name string) bool {
	return name != "" && name[0] != '.' && len(name) <= mostName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) })
}

// folderError says that the folder cannot be read. The operator knows which it is.
func folderError(err error) error {
	return problem.New(503, "unavailable", "The folder of BROKER_UI_BENCH cannot be read.").Because(err)
}

// list returns the newest reports. more: the folder has others.
func (rs *reports) list() (list []report, more bool, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	files, more, err := rs.files()
	if err != nil {
		return nil, false, err
	}
	known := make(map[string]report, len(files))
	for _, f := range files {
		if len(list) == mostReports {
			more = true
			break
		}
		r, ok := rs.known[f.Name()]
		if !ok || r.Size != f.Size() || !r.At.Equal(f.ModTime()) {
			r = rs.read(f)
		}
		known[f.Name()] = r
		if r.Is {
			list = append(list, r)
		}
	}
	rs.known = known
	return list, more, nil
}

// files returns the regular files of the folder, the newest first.
func (rs *reports) files() (files []fs.FileInfo, more bool, err error) {
	folder, err := os.Open(rs.folder)
	if err != nil {
		return nil, false, folderError(err)
	}
	defer func() { _ = folder.Close() }()
	entries, err := folder.ReadDir(mostEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, folderError(err)
	}
	more = len(entries) > mostEntries
	for _, e := range entries[:min(len(entries), mostEntries)] {
		if !e.Type().IsRegular() || !fileName(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() <= mostReport {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	return files, more, nil
}

// one returns a report by its name.
func (rs *reports) one(name string) (r report, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	f, _, err := rs.open(name)
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return r, errNoReport
	}
	if known, ok := rs.known[name]; ok && known.Size == info.Size() && known.At.Equal(info.ModTime()) {
		return known, nil
	}
	return said(f, info), nil
}

// read reads a file of the folder. The zero value of Is: it is no report.
func (rs *reports) read(info fs.FileInfo) report {
	none := report{Name: info.Name(), At: info.ModTime(), Size: info.Size()}
	f, _, err := rs.open(info.Name())
	if err != nil {
		return none
	}
	defer func() { _ = f.Close() }()
	return said(f, info)
}

// said reads what a report says.
func said(f io.Reader, info fs.FileInfo) report {
	r := report{Name: info.Name(), At: info.ModTime(), Size: info.Size(), Is: true,
		found: found{Said: "A report whose numbers cannot be read"}}
	text, err := io.ReadAll(io.LimitReader(f, mostReport))
	if err != nil {
		return r
	}
	_, data, ok := strings.Cut(string(text), dataBegin)
	data, _, ended := strings.Cut(data, dataEnd)
	var m measured
	if ok && ended && json.Unmarshal([]byte(html.UnescapeString(data)), &m) == nil {
		r.found = m.say()
	}
	return r
}

// measured is the part of the data of a report that its sentence is made of.
type measured struct {
	Kind   string
	Config struct {
		Connections, PushConsumers, PullWorkers, Channels, Batch, Payload int
		Rate                                                              float64
	}
	Results []ran
	Search  *struct{ P99Ms, Best float64 }
}

// A ran is one run of a report.
type ran struct {
	Seconds, AckedRate, DeliveredRate float64
	Ack, Delivery                     struct{ P99 float64 }
	Ledger                            *verdict
}

// A verdict is what a report says of the promises.
type verdict struct {
	Lost, Pending, Corrupted, Unpromised, OverRate, OutOfOrder int64
	Askew                                                      int64
}

// say says how the run was, and what came out.
func (m *measured) say() (f found) {
	kind := cut(m.Kind, mostKind)
	if kind == "" {
		kind = "run"
	}
	first, size := utf8.DecodeRuneInString(kind)
	kind = string(unicode.ToUpper(first)) + kind[size:]
	switch s := m.Search; {
	case s != nil && s.Best <= 0:
		return found{Said: kind + ": no rate kept p99 below " + decimal(s.P99Ms) + " ms"}
	case s != nil:
		return found{Said: kind + ": " + number(s.Best) + " messages/s kept p99 below " + decimal(s.P99Ms) + " ms"}
	case len(m.Results) == 0:
		return found{Said: kind + ": it has no run"}
	}
	length := decimal(m.Results[0].Seconds) + " s with " + m.shape()
	if n := len(m.Results); n > 1 {
		f.Said = kind + ", " + number(n) + " times " + length
	} else {
		f.Said = kind + " of " + length
	}
	slices.SortFunc(m.Results, func(a, b ran) int { return cmp.Compare(a.AckedRate, b.AckedRate) })
	r := &m.Results[(len(m.Results)-1)/2] // the median, as compare has it
	f.Said += fmt.Sprintf(": %s/s accepted, p99 %s ms", number(r.AckedRate), decimal(r.Ack.P99))
	if r.DeliveredRate > 0 {
		f.Said += fmt.Sprintf("; %s/s delivered, p99 %s ms", number(r.DeliveredRate), decimal(r.Delivery.P99))
	}
	f.Verdict, f.Bad = m.verdict()
	return f
}

// mostKind bounds the kind of a report, bytes.
const mostKind = 40

// shape says who worked.
func (m *measured) shape() string {
	c := &m.Config
	parts := []string{plural(c.Connections, "connection")}
	if c.Rate > 0 {
		parts = append(parts, number(c.Rate)+" messages/s asked for")
	}
	if c.Channels > 1 {
		parts = append(parts, plural(c.Channels, "channel"))
	}
	if c.PushConsumers > 0 {
		parts = append(parts, plural(c.PushConsumers, "push consumer"))
	}
	if c.PullWorkers > 0 {
		parts = append(parts, plural(c.PullWorkers, "pull worker"))
	}
	return strings.Join(parts, ", ")
}

// verdict says whether the promises were kept, over all runs.
func (m *measured) verdict() (text string, bad bool) {
	var v verdict
	checked := false
	for _, r := range m.Results {
		if l := r.Ledger; l != nil {
			checked = true
			v.Lost, v.Pending, v.Corrupted = v.Lost+l.Lost, v.Pending+l.Pending, v.Corrupted+l.Corrupted
			v.Unpromised, v.OverRate = v.Unpromised+l.Unpromised, v.OverRate+l.OverRate
			v.OutOfOrder, v.Askew = v.OutOfOrder+l.OutOfOrder, v.Askew+l.Askew
		}
	}
	if !checked {
		return "", false
	}
	var broken []string
	for _, b := range []struct {
		n    int64
		text string
	}{{v.Lost, "lost"}, {v.Corrupted, "corrupted"}, {v.Unpromised, "delivered although refused"},
		{v.OverRate, "beyond the rate"}, {v.OutOfOrder, "out of order"}, {v.Askew, "books that do not balance"}} {
		if b.n != 0 {
			broken = append(broken, number(b.n)+" "+b.text)
		}
	}
	switch {
	case len(broken) > 0:
		return "Broken: " + strings.Join(broken, ", "), true
	case v.Pending != 0:
		return "Nothing was lost, and " + number(v.Pending) + " were pending at the end", false
	}
	return "Every promise was kept", false
}
