package bulk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A retryError is the failure of a fetch that may succeed later.
type retryError struct {
	reason string
	wait   time.Duration
	cause  error // for the log
}

func (e *retryError) Error() string { return e.reason }

// A fetchError is the failure of a fetch that fails again however often it is tried.
type fetchError struct {
	reason string
	cause  error // for the log
}

func (e *fetchError) Error() string { return e.reason }

func failedFetch(format string, args ...any) error {
	return &fetchError{reason: fmt.Sprintf(format, args...)}
}

// An unreached is a failure of the network. The producer chose the address, so it is told the same
// of each: an answer that told a closed port from a slow one would scan the network of the broker.
// The cause is for the log.
type unreached struct{ told, cause error }

func (e *unreached) Error() string   { return e.told.Error() }
func (e *unreached) Unwrap() []error { return []error{e.told, e.cause} }

var (
	errNoAnswer = errors.New("no answer came from its address")
	errBrokeOff = errors.New("the answer broke off")
)

// fetch stores the file of a bulk whole, from its beginning, and then lets its rows be expanded.
func (b *Bulks) fetch(ctx context.Context, bulk *durable.Bulk, spec *Spec, at *place) error {
	if err := b.Store.RestartBulkBody(ctx, bulk.BulkOwner); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, b.FetchTimeout)
	defer cancel()
	c, err := b.download(limited, bulk, spec, at)
	if errors.Is(err, errCrowded) {
		return err
	}
	if errors.Is(limited.Err(), context.DeadlineExceeded) && !errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("the file did not arrive within %v", b.FetchTimeout)
	}
	if err != nil {
		return b.fetchFailed(ctx, bulk, err)
	}
	if spec.Format == CSV {
		if err := b.checkFile(ctx, bulk, spec, c.bytes); err != nil {
			return err
		}
	}
	return b.Store.RunBulk(ctx, bulk.BulkOwner, c.rows.total())
}

// fetchFailed tells whether a fetch that failed is tried again. Failures of the store are none of the file.
func (b *Bulks) fetchFailed(ctx context.Context, bulk *durable.Bulk, err error) error {
	var final *fetchError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &final), errors.Is(err, durable.ErrFailed), errors.Is(err, durable.ErrBulkLost),
		errors.Is(err, durable.ErrOutcomeUnknown):
		return err
	}
	text := "The file cannot be fetched: " + err.Error() + "."
	cause := err
	if hidden := new(unreached); errors.As(err, &hidden) {
		cause = withoutURL(hidden.cause)
	}
	if bulk.Tries >= b.Retries.MaxRetries {
		return &fetchError{fmt.Sprintf("%s Tried %d times.", text, bulk.Tries+1), cause}
	}
	return &retryError{text, b.Retries.Delay(bulk.Tries + 1), cause}
}

// withoutURL returns an error without the URL, which may contain a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// checkFile refuses a file whose columns cannot become messages.
func (b *Bulks) checkFile(ctx context.Context, bulk *durable.Bulk, spec *Spec, bytes int64) error {
	whole := *bulk
	whole.Bytes = min(bytes, int64(spec.ChunkSize)) // has the first line
	src, err := b.open(ctx, &whole, spec, min(b.Publisher.Longest(), spec.ChunkSize))
	if err == nil {
		src.rows.release()
	}
	return err
}

// request asks for the file. The answer is whole and coded as textOf undoes it, or the error says why
// not. A server is asked for the file as it is; some have only a compressed one.
func (b *Bulks) request(ctx context.Context, from string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, failedFetch("FileURL is no URL.")
	}
	r.Header.Set("Accept-Encoding", "identity")
	answer, err := b.Client.Do(r)
	if err != nil {
		return nil, &unreached{errNoAnswer, err}
	}
	if err := b.checkAnswer(answer); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

func (b *Bulks) checkAnswer(r *http.Response) error {
	codings := strings.Join(r.Header.Values(coding.Header), ",")
	_, unknown := codingsOf(codings)
	switch {
	case r.StatusCode >= 300 && r.StatusCode < 400:
		return failedFetch("The file is answered with the redirect %d, and redirects are not followed.", r.StatusCode)
	case r.StatusCode == http.StatusRequestTimeout, r.StatusCode == http.StatusTooManyRequests, r.StatusCode >= 500:
		return fmt.Errorf("the answer has the status %d", r.StatusCode)
	case r.StatusCode != http.StatusOK:
		return failedFetch("The file is answered with the status %d.", r.StatusCode)
	case unknown != nil:
		return failedFetch("The file is sent with Content-Encoding %s, and only gzip or deflate are decoded, once.",
			strings.ToValidUTF8(cut(codings), ""))
	case r.ContentLength > b.MostBytes:
		return b.tooLarge()
	}
	return nil
}

// textOf returns the text of the answer with a file, which request checked.
func (b *Bulks) textOf(answer *http.Response, moved func(n int)) (*stream, error) {
	text := newStream(answer.Body, moved, b.MostBytes)
	codings, err := codingsOf(strings.Join(answer.Header.Values(coding.Header), ","))
	if err == nil {
		err = text.decode(codings)
	}
	return text, b.failedRead(text, err)
}

// failedRead returns what an error of reading a file means for its fetch.
func (b *Bulks) failedRead(text *stream, err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case text.wire.broken():
		return &unreached{errBrokeOff, err}
	case errors.Is(err, coding.ErrTooLarge):
		return b.tooLarge()
	case errors.Is(err, errPacked):
		return failedFetch("%s", errPacked.Detail)
	}
	return failedFetch("The file is not coded as its Content-Encoding says.")
}

func (b *Bulks) tooLarge() error {
	return failedFetch("The file is larger than %d bytes.", b.MostBytes)
}

// download stores the file in chunks, and returns what it counted.
func (b *Bulks) download(ctx context.Context, bulk *durable.Bulk, spec *Spec, at *place) (c *chunker, err error) {
	c = &chunker{bulks: b, owner: bulk.BulkOwner, from: bulk.ProducerNo, size: spec.ChunkSize,
		rows: newCounter(spec.Format)}
	ctx, over := b.watch(ctx, at, &c.got)
	defer func() {
		if cause := over(); err != nil && (errors.Is(cause, errCrowded) || errors.Is(cause, errSlow)) {
			err = cause
		}
	}()
	answer, err := b.request(egress.For(ctx, share.Producer(bulk.ProducerNo)), spec.FileURL)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := b.textOf(answer, func(n int) {
		c.got.Add(int64(n))
		at.permit.Moved(n)
	})
	if err != nil {
		return nil, err
	}
	defer text.close()
	for whole := false; !whole; {
		if whole, err = c.fill(text); err != nil {
			return nil, b.failedRead(text, err)
		}
		if c.bytes > b.MostBytes {
			return nil, b.tooLarge()
		}
		if err := c.store(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// peekTime is how long a request waits for the first line of its file, to refuse a template that
// names a column which is not there.
const peekTime = 300 * time.Millisecond

// peek reads the first line of a file that is there at once. Only its columns are an error: whatever
// else is wrong is for the fetch to tell.
func (b *Bulks) peek(ctx context.Context, r *apitype.BulkRequest) error {
	if r.Template == nil || r.Format != CSV {
		return nil
	}
	t, err := compile(r.Template)
	if err != nil || len(t.tags) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	answer, err := b.request(ctx, r.FileURL)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, err := b.textOf(answer, func(int) {})
	if err != nil {
		return nil
	}
	defer text.close()
	line, err := newRowReader(io.LimitReader(text, readAhead), true, 0, readAhead-1).next(ctx)
	if err != nil || len(line) > readAhead/2 {
		return nil
	}
	_, err = checkHeader(line, t)
	return err
}

func newCounter(format string) counter { return counter{end: rowEnd{csv: format == CSV}} }

// A chunker stores a body that comes in chunks of one size, the last one excepted.
type chunker struct {
	bulks  *Bulks
	owner  durable.BulkOwner
	from   uint32 // its producer
	size   int
	rows   counter
	buf    []byte
	permit *share.Permit // of buf; nil: it is not counted
	no     int64
	bytes  int64
	got    atomic.Int64 // bytes of a fetch that came over the wire
}

// gzipBegin is how gzip begins, and neither a name in UTF-8 nor JSON.
var gzipBegin = []byte{0x1f, 0x8b}

// fill reads the next chunk, and reports whether it is the last.
func (c *chunker) fill(from *stream) (whole bool, err error) {
	c.buf = c.buf[:0]
	for len(c.buf) < c.size {
		if len(c.buf) == cap(c.buf) {
			if c.buf, err = grow(c.buf, c.size, c.permit); err != nil {
				return false, err
			}
		}
		n, err := from.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		if err == io.EOF {
			whole = true
			break
		}
		if err != nil {
			return false, err
		}
	}
	part := c.buf
	if c.no == 0 {
		if bytes.HasPrefix(part, gzipBegin) {
			return false, errPacked
		}
		part = bytes.TrimPrefix(part, bom)
	}
	c.rows.add(part)
	c.bytes += int64(len(c.buf))
	return whole, nil
}

// store stores the chunk that was read.
func (c *chunker) store(ctx context.Context) error {
	if len(c.buf) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, 2*intake.AnswerWithin)
	defer cancel()
	taken, err := c.bulks.Quota.Take(c.from, int64(len(c.buf)), 0, 0)
	if err != nil {
		return err
	}
	err = c.bulks.Store.AddBulkChunk(limited, c.owner, c.no, c.buf)
	taken.Body(c.owner.ID, err == nil)
	if err != nil {
		return err
	}
	c.no++
	failpoint.At(failpoint.AfterBulkChunk)
	return nil
}
