// Package buckets has an S3-compatible store for tests: it answers to what the archive sends, and misbehaves on
// demand. internal/test/objectstore has the tests with real ones.
//
// server.go is all of it.
package buckets

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Server is an S3-compatible store in memory. It checks that requests are signed, not the signature.
type Server struct {
	URL      string
	mu       sync.Mutex
	objects  map[string][]byte // by /bucket/key
	requests []string
	faults   Faults
}

// The keys that a request must be signed with. The secret one is not checked.
const (
	AccessKey = "key"
	SecretKey = "hidden-secret"
	Region    = "eu-test-1"
)

// Faults are what a Server does wrong. The zero value is nothing.
type Faults struct {
	Answer func(w http.ResponseWriter, r *http.Request) bool // is asked first: true: it has answered
	Read   func(path string, body []byte) []byte             // what a GET answers in place of the body
	NoDrop bool                                              // a DELETE is 403
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Misbehave sets what the server does wrong from now on.
func (s *Server) Misbehave(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Store puts an object there, by /BUCKET/KEY.
func (s *Server) Store(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = []byte(body)
}

// Object returns an object.
func (s *Server) Object(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.objects[path])
}

// Requests returns the requests since the last call, as METHOD /BUCKET/KEY.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	faults := s.faults
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	const signed = "AWS4-HMAC-SHA256 Credential=" + AccessKey + "/"
	if auth := r.Header.Get("Authorization"); !strings.HasPrefix(auth, signed) ||
		!strings.Contains(auth, "/"+Region+"/s3/aws4_request") || !strings.Contains(auth, "Signature=") {
		Refuse(w, http.StatusForbidden, "AccessDenied", "not signed: "+auth)
		return
	}
	if faults.Answer != nil && faults.Answer(w, r) {
		return
	}
	switch {
	case r.Method == http.MethodPut:
		s.put(w, r)
	case r.Method == http.MethodDelete && faults.NoDrop:
		Refuse(w, http.StatusForbidden, "AccessDenied", "no")
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, r.URL.Path)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("list-type") == "2":
		s.list(w, r)
	default:
		s.mu.Lock()
		body, found := s.objects[r.URL.Path]
		if faults.Read != nil {
			body = faults.Read(r.URL.Path, bytes.Clone(body))
		}
		s.mu.Unlock()
		if !found {
			Refuse(w, http.StatusNotFound, "NoSuchKey", "there is none")
			return
		}
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
}

// Refuse answers with an error as such a store does.
func Refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, text)
}

// put takes a body in signed chunks, and compares it with its Content-MD5.
func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	in := bufio.NewReader(r.Body)
	for {
		head, err := in.ReadString('\n')
		size, _, signed := strings.Cut(head, ";chunk-signature=")
		n, _ := strconv.ParseInt(size, 16, 64)
		if err != nil || !signed {
			Refuse(w, http.StatusBadRequest, "IncompleteBody", "no chunk")
			return
		}
		if n == 0 {
			break
		}
		if _, err := io.CopyN(&body, in, n); err != nil {
			Refuse(w, http.StatusBadRequest, "IncompleteBody", "a part of a chunk")
			return
		}
		_, _ = in.Discard(2)
	}
	sum := md5.Sum(body.Bytes())
	if r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
		Refuse(w, http.StatusBadRequest, "BadDigest", "Content-MD5 is missing or wrong")
		return
	}
	s.mu.Lock()
	s.objects[r.URL.Path] = body.Bytes()
	s.mu.Unlock()
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
}

// list answers in pages of two keys.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	type object struct{ Key string }
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []object
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	after := r.URL.Query().Get("continuation-token")
	bucket := strings.TrimSuffix(r.URL.Path, "/") + "/"
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		key := strings.TrimPrefix(path, bucket)
		if !strings.HasPrefix(key, r.URL.Query().Get("prefix")) || key <= after {
			continue
		}
		if len(page.Contents) == 2 {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[1].Key
			break
		}
		page.Contents = append(page.Contents, object{key})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(page)
}

// Keys returns the paths of all objects, in order.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}
