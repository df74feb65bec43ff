package bulk

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// part is the text of a part as curl sends it.
func part(disposition, headers, content string) string {
	return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n" + headers + "\r\n" + content + "\r\n"
}

func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// sent is what a form was read as.
type sent struct{ options, format, file string }

// readForm reads a form from the wire, whose codings are those of the whole body.
func readForm(wire io.Reader, codings string, most int64) (got sent, s *stream, err error) {
	s = newStream(wire, func(int) {}, most)
	defer s.close()
	if err = s.decode(codings); err != nil {
		return got, s, err
	}
	f := s.unwrap("b")
	options, err := f.begin(nil)
	if err != nil {
		return got, s, s.cause(err)
	}
	got.options = string(options)
	if got.format, err = f.format(); err != nil {
		return got, s, err
	}
	of, err := f.codings()
	if err != nil {
		return got, s, err
	}
	if err = s.decode(of); err != nil {
		return got, s, err
	}
	var file bytes.Buffer
	_, err = io.Copy(&file, s) // io.EOF is no error to it
	got.file = file.String()
	return got, s, err
}

func TestAFormIsReadAsItIsSent(t *testing.T) {
	csv := part(`name="file"; filename="people.csv"`, "Content-Type: application/octet-stream\r\n", "a,b\r\n1,2")
	for text, want := range map[string]sent{
		csv + "--b--\r\n": {"", CSV, "a,b\r\n1,2"},
		csv + "--b--":     {"", CSV, "a,b\r\n1,2"},
		"before\r\n" + csv +
			"--b-- \r\nand after": {"", CSV, "a,b\r\n1,2"},
		strings.ReplaceAll(csv, "\r\n", "\n") +
			"--b--\n": {"", CSV, "a,b\n1,2"},
		part(`name="options"`, "", `{"Rate":"1/1s"}`) + csv +
			"--b--\r\n": {`{"Rate":"1/1s"}`, CSV, "a,b\r\n1,2"},
		part(`name="options"; filename="o.json"`, "Content-Type: application/json\r\n", "") + csv +
			"--b--\r\n": {"", CSV, "a,b\r\n1,2"},
		part(`name="file"; filename="X.JSONL"`, "", "{}") +
			"--b--\r\n": {"", NDJSON, "{}"},
		part(`name=file; filename*=UTF-8''x%2endjson`, "", "{}") +
			"--b--\r\n": {"", NDJSON, "{}"},
		part(`name="file"; filename="x.csv"`, "Content-Type: application/x-ndjson\r\n", "{}") +
			"--b--\r\n": {"", NDJSON, "{}"},
		part(`name="file"`, "Content-Type: text/csv; charset=utf-8\r\n", "a") +
			"--b--\r\n": {"", CSV, "a"},
		part(`name="file"`, "content-type: text/plain\r\nContent-Transfer-Encoding: 8bit\r\n", "") +
			"--b--\r\n": {"", "", ""},
		part(`name="file"; filename="x.csv.gz"`, "Content-Encoding: gzip\r\n", packed("a\n1")) +
			"--b--\r\n": {"", CSV, "a\n1"},
		part(`name="file"`, "Content-Encoding: identity\r\n", "--b-") +
			"--b--\r\n": {"", "", "--b-"},
		part(`name="file"`, "", "\r\n--bb\r\n\r\n--") + "--b--\r\n": {"", "", "\r\n--bb\r\n\r\n--"},
		part(`name="options"`, "", strings.Repeat(" ", maxRequest)) + part(`name="file"`, "", strings.Repeat("x", 1<<20)) +
			"--b--" + strings.Repeat("\r\n", 9): {strings.Repeat(" ", maxRequest), "", strings.Repeat("x", 1<<20)},
	} {
		for name, reader := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader {
			return r
		}, "with its end": iotest.DataErrReader, "by bytes": iotest.OneByteReader} {
			if name == "by bytes" && len(text) > 1<<20 {
				continue
			}
			got, _, err := readForm(reader(strings.NewReader(text)), "", 1<<30)
			require.NoError(t, err, "%s %.300q", name, text)
			require.Equal(t, want, got, "%s %.300q", name, text)
			got, _, err = readForm(reader(strings.NewReader(packed(text))), "gzip", 1<<30)
			if strings.Contains(text, "Content-Encoding: gzip") {
				require.ErrorIs(t, err, errCodings, "it is decoded once")
				continue
			}
			require.NoError(t, err, "%s %.300q", name, text)
			require.Equal(t, want, got, "%s %.300q", name, text)
		}
	}
}

func TestAFormThatIsNoneIsRefused(t *testing.T) {
	options, file := part(`name="options"`, "", "{}"), part(`name="file"; filename="a.csv"`, "", "a")
	const end = "--b--\r\n"
	for text, code := range map[string]string{
		"":                                 "invalid_form",
		end:                                "invalid_form",
		"no form":                          "invalid_form",
		options + end:                      "invalid_form",
		file + options + end:               "invalid_form",
		file:                               "invalid_form",
		file + "--b\r\n":                   "invalid_form",
		file + "--b":                       "invalid_form",
		file + "--b-":                      "invalid_form",
		file + "--b\r\nContent":            "invalid_form",
		file + file + end:                  "duplicate_field",
		options + options + file + end:     "duplicate_field",
		options + file + options + end:     "duplicate_field",
		part(`name="data"`, "", "a") + end: "unknown_field",
		file + part(`name="submit"`, "", "a") + end:                            "unknown_field",
		options + part(`name="File"`, "", "a") + end:                           "unknown_field",
		part(`filename="a.csv"`, "", "a") + end:                                "invalid_form",
		"--b\r\nContent-Disposition: attachment; name=file\r\n\r\na\r\n" + end: "invalid_form",
		"--b\r\n\r\na\r\n" + end:                                               "invalid_form",
		part(`name="file"`, "Content-Transfer-Encoding: base64\r\n", "YQ==") +
			end: "unsupported_media_type",
		part(`name="file"`, "Content-Transfer-Encoding: quoted-printable\r\n", "a=20") +
			end: "unsupported_media_type",
		part(`name="file"`, "Content-Type: text/csv; charset=latin1\r\n", "a") +
			end: "unsupported_media_type",
		part(`name="file"`, "Content-Encoding: br\r\n", "a") +
			end: "unsupported_media_type",
		part(`name="file"`, "Content-Encoding: a b\r\n", "a") +
			end: "invalid_content_encoding",
		part(`name="file"`, "X: "+strings.Repeat("x", maxHead)+"\r\n", "a") + end:                     "invalid_form",
		part(`name="file"`, strings.Repeat("X: x\r\n", maxHead/6), "a") + end:                         "invalid_form",
		strings.Repeat("before\n", maxHead/6) + file + end:                                            "invalid_form",
		strings.Repeat("x", 2*maxHead):                                                                "invalid_form",
		part(`name="options"`, "", strings.Repeat(" ", maxRequest+1)) + file + end:                    "body_too_large",
		part(`name="file"; filename="a.csv"`, "Content-Encoding: gzip\r\n", packed("a")) + file + end: "duplicate_field",
	} {
		_, _, err := readForm(strings.NewReader(text), "", 1<<30)
		var p *problem.Problem
		require.ErrorAs(t, err, &p, "%.200q", text)
		require.Equal(t, code, p.Code, "%.200q: %s", text, p.Detail)
	}
}

// A body is whole only where its last byte came, wherever it is cut.
func TestABodyThatIsCutAnywhereIsNotWhole(t *testing.T) {
	form := part(`name="options"`, "", `{"Format":"csv"}`) + part(`name="file"; filename="a.csv"`, "", "a,b\n1,2\n") +
		"--b--\r\n"
	coded := part(`name="file"`, "Content-Encoding: gzip\r\n", packed("a,b\n1,2\n")) + "--b--\r\n"
	gone := errors.New("the connection ended")
	for name, c := range map[string]struct{ text, codings string }{"form": {form, ""}, "coded form": {packed(form),
		"gzip"}, "coded part": {coded, ""}} {
		for n := range c.text {
			_, _, err := readForm(io.MultiReader(strings.NewReader(c.text[:n]), iotest.ErrReader(gone)), c.codings, 1<<20)
			require.ErrorIs(t, err, gone, "%s, %d of %d bytes", name, n, len(c.text))
			_, _, err = readForm(strings.NewReader(c.text[:n]), c.codings, 1<<20)
			if strings.HasSuffix(c.text[:n], "--b--") {
				require.NoError(t, err, "the line break behind the last boundary need not be there")
				continue
			}
			require.Error(t, err, "%s, %d of %d bytes", name, n, len(c.text))
		}
		_, s, err := readForm(strings.NewReader(c.text), c.codings, 1<<20)
		require.NoError(t, err)
		require.False(t, s.wire.broken())
	}
}

func TestWhatIsDecodedIsBoundedAndTheWireIsItsProgress(t *testing.T) {
	const most = 1 << 20
	for name, body := range map[string]string{
		"in a body": part(`name="file"`, "", strings.Repeat("x", 3<<20)),
		"in a head": "--b\r\nX: " + strings.Repeat("x", 3<<20),
	} {
		came := 0
		s := newStream(strings.NewReader(packed(body)), func(n int) { came += n }, most)
		require.NoError(t, s.decode("gzip"), name)
		f := s.unwrap("b")
		_, err := f.begin(nil)
		if err == nil {
			var n int64
			n, err = io.Copy(io.Discard, s)
			require.LessOrEqual(t, n, int64(most), name)
			require.ErrorIs(t, err, coding.ErrTooLarge, name)
		}
		require.Error(t, err, name)
		require.Less(t, came, 40<<10, "few bytes of the wire are read for that")
	}
	s := newStream(strings.NewReader(strings.Repeat("x", most+1)), func(int) {}, most)
	n, err := io.Copy(io.Discard, s)
	require.ErrorIs(t, err, coding.ErrTooLarge)
	require.LessOrEqual(t, n, int64(most))
	require.False(t, s.wire.broken())
	s = newStream(strings.NewReader(strings.Repeat("x", most)), func(int) {}, most)
	n, err = io.Copy(io.Discard, s)
	require.NoError(t, err)
	require.EqualValues(t, most, n)
}

func TestTheMemoryOfATextIsCounted(t *testing.T) {
	bound := share.New(share.Options{Name: "bodies", Most: 100 << 10})
	permit := bound.Permit(share.Producer(1), nil)
	text, err := readText(strings.NewReader(strings.Repeat("x", 40<<10)), maxRequest, permit)
	require.NoError(t, err)
	require.Len(t, text, 40<<10)
	require.GreaterOrEqual(t, bound.Taken(), int64(40<<10))
	began := time.Now()
	_, err = readText(strings.NewReader(strings.Repeat("x", 100<<10)), maxRequest, permit)
	require.ErrorIs(t, err, problem.ErrOverloaded)
	require.GreaterOrEqual(t, time.Since(began), roomPatience)
	permit.Close()
	require.Zero(t, bound.Taken())
}

// The content of the parts comes through whatever it is, and a form that is read by bytes is the same.
func FuzzForm(f *testing.F) {
	f.Add("{}", "a,b\n1,2\n", "", []byte{})
	f.Add("", "\r\n--b", "--b--\r\n", []byte(part(`name="file"`, "", "x")+"--b--"))
	f.Fuzz(func(t *testing.T, options, file, behind string, raw []byte) {
		for _, body := range []string{string(raw), packed(string(raw)) + behind} {
			for _, codings := range []string{"", "gzip"} {
				got, _, err := readForm(strings.NewReader(body), codings, 1<<20)
				again, _, againErr := readForm(iotest.OneByteReader(strings.NewReader(body)), codings, 1<<20)
				require.Equal(t, err == nil, againErr == nil, "%v, %v", err, againErr)
				if err == nil {
					require.Equal(t, got, again)
				}
			}
		}
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		if w.SetBoundary("b") != nil || strings.Contains(file, "--b") || strings.Contains(options, "--b") {
			return
		}
		_ = w.WriteField("options", options)
		p, err := w.CreateFormFile("file", "x.csv")
		require.NoError(t, err)
		_, _ = io.WriteString(p, file)
		require.NoError(t, w.Close())
		got, _, err := readForm(io.MultiReader(&b, strings.NewReader(behind)), "", 1<<30)
		require.NoError(t, err, fmt.Sprintf("%q", behind))
		require.Equal(t, sent{options, CSV, file}, got)
	})
}
