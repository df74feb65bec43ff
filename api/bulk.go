package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

const (
	// shownBadRows is the number of bad rows that the page of a bulk shows.
	shownBadRows = 100
	// badRowsPage is the number of bad rows that are read from the store at once.
	badRowsPage = 1000
	// countTime bounds the count of the jobs of a bulk for one answer.
	countTime = 2 * time.Second
)

var (
	errUnknownBulk = problem.New(fasthttp.StatusNotFound, "bulk_not_found", "The channel has no such bulk.")
	errBulkOver    = problem.New(fasthttp.StatusConflict, "bulk_over",
		"The bulk is over, so that its state does not change any more.")
)

func bulkPath(channelID string, id ident.ID) string {
	return channelPath(channelID) + "/bulk/" + id.String()
}

func (a *API) acceptBulk(rc *fasthttp.RequestCtx) error { return a.o.Bulks.Accept(rc) }

// bulkInPath returns the channel and the bulk that the path names. A producer sees its own only.
func (a *API) bulkInPath(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, *durable.Bulk, error) {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return nil, nil, err
	}
	id, err := ident.Parse(param(rc, "bulk"))
	if err != nil {
		return nil, nil, errUnknownBulk
	}
	b, err := a.o.Store.BulkByID(ctx, id)
	if errors.Is(err, durable.ErrNotFound) {
		err = errUnknownBulk
	}
	if err != nil {
		return nil, nil, err
	}
	if p := publisher(rc); b.ChannelNo != ch.No || p != nil && b.ProducerNo != p.No {
		return nil, nil, errUnknownBulk
	}
	return ch, b, nil
}

func (a *API) getBulk(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, b, err := a.bulkInPath(ctx, rc)
	if err != nil {
		return err
	}
	return a.showBulk(ctx, rc, ch, b)
}

// showBulk answers with a bulk.
func (a *API) showBulk(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel, b *durable.Bulk) error {
	jobs, err := a.o.Store.CountBulkJobs(ctx, b.ID, ch.Consumers, countTime)
	if err != nil {
		return err
	}
	bad, err := a.o.Store.BadRows(ctx, b.ID, 0, shownBadRows)
	if err != nil {
		return err
	}
	view := viewBulk(ch, b)
	view.Delivered, view.Open, view.Dead, view.Counting = jobs.Delivered, jobs.Open, jobs.Dead, jobs.Partly
	for _, r := range bad {
		view.BadRows = append(view.BadRows, apitype.BadRow{Row: r.Row, Reason: r.Reason})
	}
	if p := a.o.Catalogue.ProducerByNo(b.ProducerNo); p != nil {
		view.ProducedBy = p.ID
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(b.ChangedMs), false)
}

func viewBulk(ch *catalogue.Channel, b *durable.Bulk) apitype.Bulk {
	var spec bulk.Spec
	_ = json.Unmarshal(b.Spec, &spec) // the broker wrote it; a newer one may know more
	fileURL, _, _ := strings.Cut(spec.FileURL, "?")
	view := apitype.Bulk{
		ID: b.ID.String(), State: bulk.StateOf(b), Reason: b.Reason, Format: spec.Format, FileURL: fileURL, Rate: spec.Rate,
		Template:  spec.Template,
		CreatedAt: apitype.Time{Time: b.ID.Time()}, ChangedAt: apitype.Time{Time: time.UnixMilli(b.ChangedMs)},
		Bytes: b.Bytes, Total: b.Total, Published: b.Published, Rejected: b.Rejected, Duplicates: b.Duplicates,
		PerSecond: math.Round(b.Speed), BadRows: []apitype.BadRow{}, BadRowsURL: bulkPath(ch.ID, b.ID) + "/bad-rows",
	}
	if view.State == apitype.BulkRunning && b.Speed > 0 {
		left := float64(max(0, b.Total-b.At.Row)) / b.Speed
		view.EstimatedEnd = &apitype.Time{Time: time.UnixMilli(b.ChangedMs).Add(time.Duration(min(left,
			math.MaxInt32) * float64(time.Second)))}
	}
	return view
}

func (a *API) listBulks(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	var from ident.ID
	if q.First != "" {
		if from, err = ident.Parse(q.First); err != nil {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first", "The parameter first names no bulk of the channel.")
		}
	}
	var producer uint32
	if p := publisher(rc); p != nil {
		producer = p.No
	}
	found, err := a.o.Store.Bulks(ctx, ch.No, producer, from, q.Size+1)
	if err != nil {
		return err
	}
	entries := make([]entry, len(found))
	for i, b := range found {
		entries[i] = entry{b.ID.String(), bulkPath(ch.ID, b.ID), time.UnixMilli(b.ChangedMs)}
	}
	return answerList(rc, q, channelPath(ch.ID)+"/bulks", entries, ch.ChangedAt, false)
}

func (a *API) cancelBulk(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeBulk(ctx, rc, a.o.Store.CancelBulk)
}

func (a *API) pauseBulk(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeBulk(ctx, rc, func(ctx context.Context, id ident.ID) (*durable.Bulk, error) {
		return a.o.Store.PauseBulk(ctx, id, true)
	})
}

func (a *API) resumeBulk(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeBulk(ctx, rc, func(ctx context.Context, id ident.ID) (*durable.Bulk, error) {
		return a.o.Store.PauseBulk(ctx, id, false)
	})
}

// changeBulk changes the state of a bulk and answers with it.
func (a *API) changeBulk(ctx context.Context, rc *fasthttp.RequestCtx, change func(ctx context.Context,
	id ident.ID) (*durable.Bulk, error)) error {
	if err := noForm(rc); err != nil {
		return err
	}
	ch, b, err := a.bulkInPath(ctx, rc)
	if err != nil {
		return err
	}
	b, err = change(ctx, b.ID)
	switch {
	case errors.Is(err, durable.ErrBulkOver):
		return errBulkOver
	case errors.Is(err, durable.ErrNotFound):
		return errUnknownBulk
	case err != nil:
		return err
	}
	a.o.Bulks.Wake()
	return a.showBulk(ctx, rc, ch, b)
}

// getBadRows answers with all bad rows of a bulk, which it reads page by page.
func (a *API) getBadRows(ctx context.Context, rc *fasthttp.RequestCtx) error {
	_, b, err := a.bulkInPath(ctx, rc)
	if err != nil {
		return err
	}
	page, err := a.o.Store.BadRows(ctx, b.ID, 0, badRowsPage)
	if err != nil {
		return err
	}
	rc.SetContentType(apitype.MediaJSON)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.Response.Header.Set(fasthttp.HeaderLastModified, string(fasthttp.AppendHTTPDate(nil, time.UnixMilli(b.ChangedMs))))
	st, of := standing(rc), request.Of(rc) // the RequestCtx is another request's when the rows are written
	rc.SetBodyStreamWriter(func(w *bufio.Writer) {
		if err := a.writeBadRows(of, w, st, b.ID, page); err != nil {
			a.log.Debug("the bad rows of a bulk were not written whole", "error", err)
		}
	})
	return nil
}

// writeBadRows writes pages of bad rows, the first of which is read already, as long as a new request
// would be admitted. After an error the answer is no JSON, so that a client takes it for what it is.
func (a *API) writeBadRows(of context.Context, w *bufio.Writer, st *catalogue.Standing, id ident.ID,
	page []durable.BadRow) error {
	between := `{"Result":[`
	for len(page) > 0 {
		for _, r := range page {
			row, err := encode(apitype.BadRow{Row: r.Row, Reason: r.Reason})
			if err != nil {
				return err
			}
			_, _ = w.WriteString(between + "\n" + strings.TrimSuffix(string(row), "\n")) // Flush tells
			between = ","
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(page) < badRowsPage {
			break
		}
		if err := st.Check(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(of, requestTimeout)
		next, err := a.o.Store.BadRows(ctx, id, page[len(page)-1].Row, badRowsPage)
		cancel()
		if err != nil {
			return err
		}
		page = next
	}
	if between != "," {
		_, _ = w.WriteString(between)
	}
	_, err := w.WriteString("]}\n")
	return err
}
