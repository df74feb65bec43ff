package bulk

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/internal/share"
)

// The formats of a body by its media type. A request is JSON instead.
var formats = map[string]string{"text/csv": CSV, "application/x-ndjson": NDJSON, "application/json": ""}

var errMedia = problem.New(415, "unsupported_media_type", "A bulk is application/x-ndjson, text/csv in UTF-8 with a header line, or application/json with a FileURL.")

// Accept is POST /channel/{channel}/bulk. A 202 means that the bulk is stored: a body whole, in
// chunks, in bounded memory; of a file, where it is.
func (b *Bulks) Accept(rc *fasthttp.RequestCtx) error {
	st, err := b.Publisher.Sender(rc)
	if err != nil {
		return err
	}
	ch, producer := st.Channel, st.Producer
	format, err := formatOf(rc.Request.Header.ContentType())
	if err != nil {
		return err
	}
	if err := accept.Uncoded(&rc.Request.Header); err != nil {
		return err
	}
	if err := b.replicates(ch); err != nil {
		return err
	}
	spec := Spec{BulkRequest: apitype.BulkRequest{Format: format}, ChunkSize: chunkSize}
	if spec.Defaults, err = b.Publisher.RowDefaults(&rc.Request.Header, ch); err != nil {
		return err
	}
	bulk := &durable.Bulk{ChannelNo: ch.No, ProducerNo: producer.No}
	bulk.ID = b.Publisher.NewID()
	_, _ = rand.Read(bulk.Owner[:]) // never fails, says its documentation
	if format == "" {
		err = b.takeRequest(rc, &st, bulk, &spec)
	} else {
		err = b.takeBody(rc, &st, bulk, &spec)
	}
	if err != nil {
		return err
	}
	failpoint.At(failpoint.AfterBulkBody)
	b.Wake()
	if err := b.confirm(ch, bulk.ID); err != nil {
		return err
	}
	b.Log.Info("a bulk is accepted", "bulk", bulk.ID.String(), "channel", ch.ID, "producer", producer.ID, "format", spec.Format, "file", spec.FileURL != "")
	rc.Response.Header.Set(fasthttp.HeaderLocation, path(ch, bulk))
	rc.Response.Header.Set(accept.AckHeader, accept.Committed(ch.Intake.Ack).String())
	rc.SetStatusCode(fasthttp.StatusAccepted)
	return nil
}

// replicates refuses a bulk of a channel with ack=replicated where the store has no second server.
func (b *Bulks) replicates(ch *catalogue.Channel) error {
	if ch.Intake.Ack != policy.AckReplicated {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	return b.Store.Replicates(ctx)
}

// confirm returns nil where a second server has a bulk that is stored, as the channel demands. The
// steps of the bulk need no proof: a second server that takes over has the body, and goes on from
// the checkpoint that it has.
func (b *Bulks) confirm(ch *catalogue.Channel, id ident.ID) error {
	if ch.Intake.Ack != policy.AckReplicated {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	return b.Store.ConfirmBulk(ctx, id)
}

func path(ch *catalogue.Channel, bulk *durable.Bulk) string {
	return "/channel/" + ch.ID + "/bulk/" + bulk.ID.String()
}

// formatOf returns the format of a body, "" for a request.
func formatOf(contentType []byte) (string, error) {
	kind, params, err := mime.ParseMediaType(string(contentType))
	format, known := formats[kind]
	charset := params["charset"]
	if err != nil || !known || params["header"] == "absent" || charset != "" && !isUTF8(charset) {
		return "", errMedia
	}
	return format, nil
}

func isUTF8(charset string) bool {
	switch charset {
	case "utf-8", "UTF-8", "utf8", "UTF8", "us-ascii", "US-ASCII":
		return true
	}
	return false
}

// takeRequest stores a bulk whose file is fetched later.
func (b *Bulks) takeRequest(rc *fasthttp.RequestCtx, st *catalogue.Standing, bulk *durable.Bulk, spec *Spec) error {
	key := share.Producer(bulk.ProducerNo)
	body, taken, err := intake.Read(rc, b.Bodies, key, maxRequest)
	defer b.Bodies.Give(key, taken)
	if err != nil {
		return err
	}
	request, err := parseRequest(body, b.CheckURL)
	if err != nil {
		return err
	}
	if err := b.peek(request); err != nil {
		return err
	}
	if err := b.Publisher.Still(st); err != nil {
		return err
	}
	spec.BulkRequest, bulk.State = *request, durable.BulkFetching
	return maybeStored(b.create(bulk, spec, nil))
}

// maybeStored is the answer to a request whose last write failed: an earlier try of the store may
// have got through, and then the bulk runs.
func maybeStored(err error) error {
	if errors.Is(err, durable.ErrFailed) || errors.Is(err, durable.ErrBulkLost) {
		return problem.ErrOutcomeUnknown.Because(err)
	}
	return err
}

// create stores a bulk, with the first chunk of its body.
func (b *Bulks) create(bulk *durable.Bulk, spec *Spec, chunk []byte) (err error) {
	if bulk.Spec, err = json.Marshal(spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	taken, err := b.Quota.Take(bulk.ProducerNo, int64(len(chunk)), 0, 0)
	if err != nil {
		return err
	}
	err = b.Store.CreateBulk(ctx, bulk, chunk)
	taken.Body(bulk.ID, err == nil)
	return err
}

// takeBody stores a bulk with its body. Chunks of a body that breaks off, or whose broker dies, belong
// to a bulk that nobody sees; a sweep removes them.
func (b *Bulks) takeBody(rc *fasthttp.RequestCtx, st *catalogue.Standing, bulk *durable.Bulk, spec *Spec) error {
	if n := int64(rc.Request.Header.ContentLength()); n > b.MostBytes {
		return intake.ErrTooLarge
	}
	body := b.Publisher.Body(rc, st)
	c := chunker{bulks: b, owner: bulk.BulkOwner, from: bulk.ProducerNo, size: spec.ChunkSize, rows: newCounter(spec.Format)}
	c.hold = b.Bodies.Hold(share.Producer(bulk.ProducerNo), body.End)
	defer c.hold.Close()
	whole, err := c.fill(body)
	if err != nil {
		return broken(rc, err)
	}
	if spec.Format == CSV {
		if err := checkFirst(c.buf, whole); err != nil {
			return err
		}
	}
	if c.bytes > b.MostBytes {
		return intake.ErrTooLarge
	}
	if whole { // in one transaction
		bulk.State, bulk.Total = durable.BulkRunning, c.rows.total()
		return maybeStored(b.create(bulk, spec, c.buf))
	}
	if err := b.create(bulk, spec, c.buf); err != nil {
		return err
	}
	c.no++
	failpoint.At(failpoint.AfterBulkChunk)
	return b.takeRest(rc, body, &c)
}

// takeRest stores the other chunks of a body.
func (b *Bulks) takeRest(rc *fasthttp.RequestCtx, body io.Reader, c *chunker) error {
	for whole := false; !whole; {
		var err error
		if whole, err = c.fill(body); err != nil {
			return broken(rc, err)
		}
		if c.bytes > b.MostBytes {
			return intake.ErrTooLarge
		}
		if err := c.store(context.Background()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	return maybeStored(b.Store.RunBulk(ctx, c.owner, c.rows.total()))
}

// checkFirst refuses a body whose columns cannot become messages. chunk is its beginning, or whole.
func checkFirst(chunk []byte, whole bool) error {
	line, err := newRowReader(bytes.NewReader(chunk), true, 0, len(chunk)).next(context.Background())
	switch {
	case errors.Is(err, io.EOF):
		return errNoHeader
	case err != nil:
		return err
	case !whole && len(line) >= len(chunk)-len(bom):
		return errHeader // it does not end
	}
	_, err = checkHeader(line, nil)
	return err
}

// broken is the refusal of a body that did not arrive whole. Where the next request would start is
// not known, so there is none.
func broken(rc *fasthttp.RequestCtx, err error) error {
	refusal := (*problem.Problem)(nil)
	if errors.As(err, &refusal) && !errors.Is(err, problem.ErrOverloaded) { // of the sender; the body is whole so far
		return refusal
	}
	rc.SetConnectionClose()
	if errors.Is(err, problem.ErrOverloaded) {
		return err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return intake.ErrSlow
	}
	return intake.ErrBroken
}
