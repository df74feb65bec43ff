package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Folder is the environment variable with the folder of the records.
const Folder = "PENSTOCK_TRAFFIC"

const (
	mostBody   = 64 << 10 // bytes of a body that are kept
	mostOfKind = 20       // exchanges of a kind
)

// An Exchange is a request and its answer.
type Exchange struct {
	Method  string
	Path    string      // with the query, as it was sent
	Route   string      // "GET /channels"; "" where no route takes the request
	Headers http.Header // of the request
	Body    []byte      `json:",omitempty"`
	Cut     bool        `json:",omitempty"` // Body is not the whole body

	Status  int
	Answer  http.Header // of the answer
	Text    []byte      `json:",omitempty"` // body of the answer
	TextCut bool        `json:",omitempty"` // Text is not the whole body
}

// A Recorder writes exchanges to a file; safe for concurrent use.
type Recorder struct {
	folder string

	mu   sync.Mutex
	file *os.File       // nil before the first exchange
	seen map[string]int // exchanges by kind
}

// New makes a recorder of this process that writes into a folder. The name of its file begins with that of the
// program: api.test for the tests of package api.
func New(folder string) *Recorder { return &Recorder{folder: folder, seen: map[string]int{}} }

// ofProcess is the recorder of this process, nil where nothing is recorded.
var ofProcess = sync.OnceValue(func() *Recorder {
	folder := os.Getenv(Folder)
	if folder == "" {
		return nil
	}
	return New(folder)
})

// Record writes an exchange, unless there are enough of its kind. It cuts long bodies.
func (r *Recorder) Record(e Exchange) error {
	method := e.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if route, ok := apitype.Taking(method, e.Path); ok {
		e.Route = method + " " + route.Path
	}
	e.Body, e.Cut = cut(e.Body, e.Cut)
	e.Text, e.TextCut = cut(e.Text, e.TextCut)
	kind := e.kind()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[kind]++; r.seen[kind] > mostOfKind {
		return nil
	}
	line, err := json.Marshal(e)
	if err == nil && r.file == nil {
		r.file, err = os.CreateTemp(r.folder, fmt.Sprintf("%s-%d-*.ndjson", filepath.Base(os.Args[0]), os.Getpid()))
	}
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	return err
}

// Close ends the file, after a Record.
func (r *Recorder) Close() error { return r.file.Close() }

func cut(body []byte, was bool) ([]byte, bool) {
	if len(body) > mostBody {
		return body[:mostBody], true
	}
	return body, was
}

// kind is what the comparison can tell exchanges apart by: method, route, status, the names of headers, parameters
// and members, and the codes of errors.
func (e Exchange) kind() string {
	names := map[string]bool{}
	for name := range e.Headers {
		names["> "+name] = true
	}
	for name := range e.Answer {
		names["< "+name] = true
	}
	_, query, _ := strings.Cut(e.Path, "?")
	if values, err := url.ParseQuery(query); err == nil {
		for name := range values {
			names["? "+name] = true
		}
	}
	membersOf("> ", e.Headers.Get("Content-Type"), e.Body, names)
	membersOf("< ", e.Answer.Get("Content-Type"), e.Text, names)
	return strings.Join(append([]string{e.Method, e.Route, strconv.Itoa(e.Status), e.Headers.Get("Content-Type"),
		e.Answer.Get("Content-Type")}, slices.Sorted(maps.Keys(names))...), "\n")
}

// membersOf adds the members of a body, each with those around it. A code has its value.
func membersOf(prefix, media string, body []byte, names map[string]bool) {
	if strings.HasPrefix(media, apitype.MediaForm) {
		if values, err := url.ParseQuery(string(body)); err == nil {
			for name := range values {
				names[prefix+name] = true
			}
		}
		return
	}
	if !strings.Contains(media, "json") {
		return
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var v any
		if d.Decode(&v) != nil {
			return
		}
		walk(prefix, v, names)
	}
}

func walk(prefix string, v any, names map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			walk(prefix+"[]", one, names)
		}
	case map[string]any:
		for name, one := range v {
			at := prefix + "." + name
			names[at] = true
			if text, ok := one.(string); ok && strings.HasSuffix(strings.ToLower(name), "code") {
				names[at+"="+text] = true
			}
			walk(at, one, names)
		}
	}
}

// Read returns the exchanges of the records of a program in a folder, "" for all, file by file.
func Read(folder, program string) (all []Exchange, err error) {
	files, err := filepath.Glob(filepath.Join(folder, program+"*.ndjson"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
			var e Exchange
			if err := d.Decode(&e); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, e)
		}
	}
	return all, nil
}
