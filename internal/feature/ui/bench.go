package ui

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	reportPath = "/ui/bench/report"
	// reportPolicy is that of a report: its own style sheet, which is inline, and nothing else. It is a page of no
	// origin, so it reaches nothing of the broker, and only pages of the broker have it in a frame.
	reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'; " +
		"form-action 'none'; sandbox"
	framePolicy = "; frame-src 'self'" // what the page of a report may do besides
)

var errNoReport = problem.New(fasthttp.StatusNotFound, "no_such_path", "There is no report of this name.")

// A benchView is the list of reports, or one of them.
type benchView struct {
	Set  bool // there is a folder
	Rows []reportRow
	More bool // older ones are left out
	Shown,
	Frame string // the name of the report that is shown, and where it is
	Now time.Time
}

// A reportRow is a report in a list.
type reportRow struct {
	report
	URL string
}

// benchPage lists the reports of the folder, or shows the one that the query names.
func benchPage(_ context.Context, v *view) (title string, content any, err error) {
	p := &benchView{Set: v.d.o.Bench != "", Now: v.now}
	q := v.query("report")
	if name := q.Get("report"); name != "" {
		r, err := v.d.reports.one(name)
		if err != nil {
			return "", nil, err
		}
		p.Shown, p.Frame = name, reportPath+"?"+q.Encode()
		p.Rows = []reportRow{{report: r}}
		v.framing = true
		return cmp.Or(r.Verdict, r.Said), p, nil
	}
	if !p.Set {
		return "No folder of reports is set", p, nil
	}
	list, more, err := v.d.reports.list()
	if err != nil {
		return "", nil, err
	}
	p.More = more
	for _, r := range list {
		p.Rows = append(p.Rows, reportRow{r, "/ui/bench?" + url.Values{"report": {r.Name}}.Encode()})
	}
	if len(list) == 0 {
		return "The folder has no report", p, nil
	}
	return spelled(len(list)) + " " + nounOf(len(list), "report") + " of bench", p, nil
}

// nounOf is a noun for a number of things.
func nounOf(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// report answers with the file of a report.
func (d *Dashboard) report(rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	f, size, err := d.reports.open(v.query("report").Get("report"))
	if err != nil {
		d.refuse(v, visit, err)
		return
	}
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderContentSecurityPolicy, reportPolicy)
	h.Del("Cross-Origin-Opener-Policy") // with it a browser shows no page of no origin by itself
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetContentType(apitype.MediaHTML + "; charset=utf-8")
	rc.Response.SetBodyStream(f, int(size)) // which closes it
}
