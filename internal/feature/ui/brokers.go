package ui

import (
	"context"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/fleet"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Broker is one that is alive.
type Broker struct {
	No      int
	Name    string
	Self    bool        // it made the page
	Expires time.Time   // when it counts as gone unless it renews its lease
	Note    *fleet.Note // what it says of itself; nil: nothing at present
}

// An About is what a broker knows of itself.
type About struct {
	apitype.Version
	Started time.Time
	Store   string // its kind
}

// A brokersView is the list of the brokers.
type brokersView struct {
	Rows     []brokerRow
	About    About
	Facts    []fact
	Settings []apitype.Setting // those that are set, or all
	All      bool
	Now      time.Time
}

// A brokerRow is a broker with its note in words.
type brokerRow struct {
	Broker
	Up, Processors, Memory string
	Journal                Mark
	Differs                bool // its version is another one than that of the broker that made the page
}

func brokersPage(_ context.Context, v *view) (title string, content any, err error) {
	p := &brokersView{Now: v.now, All: v.query("show").Get("show") == "settings"}
	list, about := v.src.Brokers()
	p.About = about
	p.Facts = []fact{{Name: "Version", Text: about.Version.Version}, {Name: "Commit", Text: about.Commit},
		{Name: "Go", Text: about.Go},
		{Name: "Up for", Text: age(v.now.Sub(about.Started))}, {Name: "Store", Text: about.Store}}
	differ := false
	for i := range list {
		row := rowOfBroker(&list[i], v.now)
		if n := list[i].Note; n != nil && n.Version.Version != about.Version.Version {
			row.Differs, differ = true, true
		}
		p.Rows = append(p.Rows, row)
	}
	for _, s := range v.src.Settings() {
		if p.All || s.Set {
			p.Settings = append(p.Settings, s)
		}
	}
	title = "One broker is alive"
	if len(p.Rows) != 1 {
		title = spelled(len(p.Rows)) + " brokers are alive"
	}
	if differ {
		title += ", with different versions"
	}
	return title, p, nil
}

// rowOfBroker puts what a broker says of itself into words.
func rowOfBroker(b *Broker, now time.Time) brokerRow {
	r := brokerRow{Broker: *b}
	n := b.Note
	if n == nil {
		return r
	}
	r.Up, r.Memory = age(now.Sub(n.Began())), bytesText(n.Memory)
	if n.Processors > 0 {
		r.Processors = decimal(n.Processors)
	}
	r.Journal = markOfJournal(&n.Journal)
	return r
}

// markOfJournal says what a journal holds.
func markOfJournal(j *fleet.Journal) Mark {
	m := Mark{Class: "off", Word: "Empty"}
	if j.Waiting > 0 {
		m = Mark{Word: plural(int(j.Waiting), "message")}
		m.Sub = bytesText(j.Bytes) + ", the oldest for " + age(time.Duration(j.Oldest)*time.Millisecond)
		if j.Oldest > lateJournal.Milliseconds() {
			m.Class = "warn"
		}
	}
	var held []string
	if j.Held > 0 {
		held = append(held, plural(int(j.Held), "message")+" held")
	}
	if j.Damaged > 0 {
		held = append(held, plural(j.Damaged, "damaged file"))
	}
	if len(held) > 0 {
		m = Mark{Class: "warn", Word: strings.Join(held, ", "), Sub: m.Sub}
	}
	return m
}

// lateJournal is how long a message may wait in a journal until a person should look: the store takes none.
const lateJournal = time.Minute

// bytesText writes a number of bytes with one unit.
func bytesText(n int64) string {
	size := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if size < 1<<10 {
			return decimal(size) + " " + unit
		}
		size /= 1 << 10
	}
	return decimal(size) + " GiB"
}
