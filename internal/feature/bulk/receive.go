package bulk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// An upload is the request of a bulk while its body comes.
type upload struct {
	rc     *fasthttp.RequestCtx
	ctx    context.Context // of the request
	st     *catalogue.Standing
	bulk   *durable.Bulk
	spec   *Spec
	permit *share.Permit // of the memory that it takes
	body   *stream
}

// Accept is POST /channel/{channel}/bulk. A 202 means that the bulk is stored: a body whole, in
// chunks, in bounded memory; of a file elsewhere, where it is.
func (b *Bulks) Accept(rc *fasthttp.RequestCtx) error {
	st, err := b.Publisher.Sender(rc)
	if err != nil {
		return err
	}
	ch, producer := st.Channel, st.Producer
	kind, params, err := mime.ParseMediaType(string(rc.Request.Header.ContentType()))
	if err != nil {
		return errMedia
	}
	ctx := request.Of(rc)
	if err := b.replicates(ctx, ch); err != nil {
		return err
	}
	u := &upload{rc: rc, ctx: ctx, st: &st, bulk: &durable.Bulk{ChannelNo: ch.No, ProducerNo: producer.No},
		spec: &Spec{ChunkSize: chunkSize}}
	if u.spec.Defaults, err = b.Publisher.Defaults(u.ctx, &rc.Request.Header, ch); err != nil {
		return err
	}
	u.bulk.ID = b.Publisher.NewID()
	_, _ = rand.Read(u.bulk.Owner[:]) // never fails, says its documentation
	if err := b.take(u, kind, params); err != nil {
		return err
	}
	failpoint.At(failpoint.AfterBulkBody)
	b.Wake()
	if err := b.confirm(u.ctx, ch, u.bulk.ID); err != nil {
		return err
	}
	b.Log.Info("a bulk is accepted", "bulk", u.bulk.ID.String(), "channel", ch.ID, "producer", producer.ID, "format",
		u.spec.Format, "file", u.spec.FileURL != "")
	rc.Response.Header.Set(fasthttp.HeaderLocation, path(ch, u.bulk))
	rc.Response.Header.Set(publish.AckHeader, publish.Committed(ch.Intake.Ack).String())
	rc.SetStatusCode(fasthttp.StatusAccepted)
	return nil
}

// take stores the bulk of a request by its media type.
func (b *Bulks) take(u *upload, kind string, params map[string]string) error {
	said, err := headerOptions(&u.rc.Request.Header)
	if err != nil {
		return err
	}
	switch kind {
	case apitype.MediaJSON:
		if !inUTF8(params) {
			return errMedia
		}
		if said != nil {
			return errOptionsTwice
		}
		return b.reading(u, maxRequest, b.takeRequest)
	case mediaMultipart:
		if n := len(params["boundary"]); n == 0 || n > maxBoundary {
			return errForm
		}
		return b.reading(u, b.MostBytes, func(u *upload) error { return b.takeForm(u, params["boundary"], said) })
	}
	format, err := formatOf(kind, params)
	switch {
	case err != nil:
		return err
	case format == "":
		return errMedia
	case said != nil:
		u.spec.BulkRequest = *said
	}
	u.spec.Format = format
	return b.reading(u, b.MostBytes, b.takeBody)
}

// reading begins to read the body of a request, of at most that many bytes before and after it is
// decoded. Its progress is what comes over the wire: a body that comes slowly is ended under pressure,
// whatever is decoded from it.
func (b *Bulks) reading(u *upload, most int64, take func(*upload) error) error {
	h := &u.rc.Request.Header
	codings, err := codingsOf(string(bytes.Join(h.PeekAll(coding.Header), []byte{','})))
	if err != nil {
		return err
	}
	if int64(h.ContentLength()) > most {
		return intake.ErrTooLarge
	}
	body := b.Publisher.Body(u.rc, u.st)
	u.permit = b.Bodies.Permit(share.Producer(u.bulk.ProducerNo), body.End)
	defer u.permit.Close()
	u.body = newStream(body, u.permit.Moved, most)
	defer u.body.close()
	if err = u.decode(codings); err == nil {
		err = take(u)
	}
	return u.refusal(err)
}

// decode undoes a coding of what is read of the body, or of the part file.
func (u *upload) decode(value string) error {
	if value != "" && !u.permit.Await(u.ctx, coding.Window, roomPatience) {
		return problem.ErrOverloaded
	}
	return u.body.decode(value)
}

// replicates refuses a bulk of a channel with ack=replicated where the store has no second server.
func (b *Bulks) replicates(ctx context.Context, ch *catalogue.Channel) error {
	if ch.Intake.Ack != policy.AckReplicated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	return b.Store.Replicates(ctx)
}

// confirm returns nil where a second server has a bulk that is stored, as the channel demands. The
// steps of the bulk need no proof: a second server that takes over has the body, and goes on from
// the checkpoint that it has.
func (b *Bulks) confirm(ctx context.Context, ch *catalogue.Channel, id ident.ID) error {
	if ch.Intake.Ack != policy.AckReplicated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	return b.Store.ConfirmBulk(ctx, id)
}

func path(ch *catalogue.Channel, bulk *durable.Bulk) string {
	return "/channel/" + ch.ID + "/bulk/" + bulk.ID.String()
}

// takeRequest stores a bulk whose file is fetched later.
func (b *Bulks) takeRequest(u *upload) error {
	text, err := readText(u.body, maxRequest, u.permit)
	if err != nil {
		return err
	}
	request, err := parseRequest(text, b.CheckURL)
	if err != nil {
		return err
	}
	if err := b.peek(u.ctx, request); err != nil {
		return err
	}
	if err := b.Publisher.Still(u.ctx, u.st); err != nil {
		return err
	}
	u.spec.BulkRequest, u.bulk.State = *request, durable.BulkFetching
	return maybeStored(b.create(u.ctx, u.bulk, u.spec, nil))
}

// takeForm stores a bulk with the part file of a form. said are the options in the headers, if any.
func (b *Bulks) takeForm(u *upload, boundary string, said *apitype.BulkRequest) error {
	f := u.body.unwrap(boundary)
	text, err := f.begin(u.permit)
	if err != nil {
		return u.body.cause(err)
	}
	options := said
	if text != nil {
		if options, err = parseOptions(text); err != nil {
			return err
		}
		if said != nil {
			return errOptionsTwice
		}
	}
	if options != nil {
		u.spec.BulkRequest = *options
	}
	format, err := f.format()
	if err != nil {
		return err
	}
	if u.spec.Format = cmp.Or(u.spec.Format, format); u.spec.Format == "" {
		return errFileFormat
	}
	codings, err := f.codings()
	if err != nil {
		return err
	}
	if err := u.decode(codings); err != nil {
		return err
	}
	return b.takeBody(u)
}

// maybeStored is the answer to a request whose last write failed: an earlier try of the store may
// have got through, and then the bulk runs.
func maybeStored(err error) error {
	if errors.Is(err, durable.ErrFailed) && !durable.Full(err) || errors.Is(err, durable.ErrBulkLost) {
		return problem.ErrOutcomeUnknown.Because(err)
	}
	return err
}

// create stores a bulk, with the first chunk of its body.
func (b *Bulks) create(ctx context.Context, bulk *durable.Bulk, spec *Spec, chunk []byte) (err error) {
	if bulk.Spec, err = json.Marshal(spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
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
func (b *Bulks) takeBody(u *upload) error {
	bulk, spec := u.bulk, u.spec
	c := chunker{bulks: b, owner: bulk.BulkOwner, from: bulk.ProducerNo, size: spec.ChunkSize,
		rows: newCounter(spec.Format), permit: u.permit}
	whole, err := c.fill(u.body)
	if err != nil {
		return err
	}
	if spec.Format == CSV {
		if err := checkFirst(c.buf, whole, spec.Template); err != nil {
			return err
		}
	}
	if c.bytes > b.MostBytes {
		return intake.ErrTooLarge
	}
	if whole { // in one transaction
		bulk.State, bulk.Total = durable.BulkRunning, c.rows.total()
		return maybeStored(b.create(u.ctx, bulk, spec, c.buf))
	}
	if err := b.create(u.ctx, bulk, spec, c.buf); err != nil {
		return err
	}
	c.no++
	failpoint.At(failpoint.AfterBulkChunk)
	return b.takeRest(u, &c)
}

// takeRest stores the other chunks of a body.
func (b *Bulks) takeRest(u *upload, c *chunker) error {
	for whole := false; !whole; {
		var err error
		if whole, err = c.fill(u.body); err != nil {
			return err
		}
		if c.bytes > b.MostBytes {
			return intake.ErrTooLarge
		}
		if err := c.store(u.ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(u.ctx, intake.AnswerWithin)
	defer cancel()
	return maybeStored(b.Store.RunBulk(ctx, c.owner, c.rows.total()))
}

// checkFirst refuses a body whose columns cannot become messages. chunk is its beginning, or whole.
func checkFirst(chunk []byte, whole bool, template *apitype.BulkTemplate) error {
	line, err := newRowReader(bytes.NewReader(chunk), true, 0, len(chunk)).next(context.Background())
	switch {
	case errors.Is(err, io.EOF):
		return errNoHeader
	case err != nil:
		return err
	case !whole && len(line) >= len(chunk)-len(bom):
		return errHeader // it does not end
	}
	var t *compiled
	if template != nil {
		if t, err = compile(template); err != nil {
			return err
		}
	}
	_, err = checkHeader(line, t)
	return err
}

// refusal is the answer to an error of a request whose body was read. Where the body did not come whole,
// it is not known where the next request would start, so there is none.
func (u *upload) refusal(err error) error {
	var of *problem.Problem
	switch {
	case err == nil:
		return nil
	case errors.Is(err, coding.ErrTooLarge) && u.body.wire.err != coding.ErrTooLarge:
		return errDecodedLarge
	case errors.Is(err, coding.ErrTooLarge):
		return intake.ErrTooLarge
	case errors.Is(err, coding.ErrBroken):
		return errNotCoded
	case errors.Is(err, problem.ErrOverloaded) && u.body.wire.err == nil:
		u.rc.SetConnectionClose()
		return err
	case !u.body.wire.broken() || errors.As(err, &of): // of the store, or of the sender, who is checked as the body comes
		return err
	}
	u.rc.SetConnectionClose()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return intake.ErrSlow
	}
	return intake.ErrBroken
}
