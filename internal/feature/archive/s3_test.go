package archive

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/buckets"
)

func newBucketServer(t *testing.T) (*buckets.Server, *S3) {
	t.Helper()
	s := buckets.New(t)
	settings := S3Settings{Endpoint: s.URL, Bucket: "cold", Prefix: "penstock/archive", Region: buckets.Region,
		AccessKey: buckets.AccessKey, SecretKey: buckets.SecretKey, PathStyle: true}
	require.NoError(t, settings.Check(false))
	store, err := NewS3(settings)
	require.NoError(t, err)
	return s, store
}

// stored seals a file of messages in a bucket.
func stored(t *testing.T, b *Bucket, msgs []durable.Message) error {
	t.Helper()
	f, err := Begin(t.Context(), b, "orders")
	if err != nil {
		return err
	}
	for i := range msgs {
		require.NoError(t, f.Add(&msgs[i], "shop", nil, nil))
	}
	return f.Seal(t.Context())
}

// empty reports that nothing is left on the local disk.
func requireEmpty(t *testing.T, spool string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(spool, "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAStoreHasWhatIsArchived(t *testing.T) {
	s, store := newBucketServer(t)
	spool := t.TempDir()
	b := NewBucket(store, spool)
	in := messages(5)
	require.NoError(t, stored(t, b, in))
	require.NoError(t, stored(t, b, messages(3)))
	requireEmpty(t, spool)
	keys := s.Keys()
	require.Len(t, keys, 4)
	require.Regexp(t, `^/cold/penstock/archive/orders/\d{8}T\d{6}\.\d{3}Z-\w+-\w{8}/manifest\.json$`, keys[0])

	s.Store("/cold/penstock/archive/orders/not-whole/messages.jsonl.zst", "a crash left it")
	s.Store("/cold/other/manifest.json", "{}")
	all, skipped, err := Find(t.Context(), store, []string{store.Root()})
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Len(t, all, 2)
	require.NoError(t, all[0].Verify(t.Context()))
	got := records(t, all[0])
	require.Len(t, got, 5)
	require.Equal(t, string(in[4].Payload), string(got[4].Body()))
	var out bytes.Buffer
	n, err := Grep(t.Context(), &out, all, regexp.MustCompile("^payload"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	folder := all[0].Folder
	for _, name := range []string{folder, folder + "/", all[0].Messages(), folder + "/manifest.json"} {
		one, _, err := Find(t.Context(), store, []string{name})
		require.NoError(t, err, name)
		require.Len(t, one, 1, name)
		require.Equal(t, all[0].Manifest, one[0].Manifest)
	}

	_, _, err = Find(t.Context(), store, []string{"s3://cold/nothing"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = Find(t.Context(), store, []string{"s3://"})
	require.ErrorContains(t, err, "s3://BUCKET/KEY")
	_, _, err = Find(t.Context(), nil, []string{store.Root()})
	require.ErrorContains(t, err, "the settings name no")
	_, skipped, err = Find(t.Context(), store, []string{"s3://cold"})
	require.NoError(t, err)
	require.Len(t, skipped, 1, "a manifest that is none is told")
}

// Whatever a store does wrong, a file is not sealed, and what is left in it is no part of the archive.
func TestAStoreThatMisbehavesTakesNothing(t *testing.T) {
	refused := func(method, suffix string, answer func(w http.ResponseWriter)) buckets.Faults {
		return buckets.Faults{Answer: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || !strings.HasSuffix(r.URL.Path, suffix) {
				return false
			}
			answer(w)
			return true
		}}
	}
	answers := func(status int, code, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { buckets.Refuse(w, status, code, text) }
	}
	cut := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	wrong := func(suffix string, change func([]byte) []byte) buckets.Faults {
		return buckets.Faults{Read: func(path string, body []byte) []byte {
			if strings.HasSuffix(path, suffix) {
				return change(body)
			}
			return body
		}}
	}
	rename := func(b []byte) []byte { return bytes.Replace(b, []byte("orders"), []byte("others"), 1) }
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for name, c := range map[string]struct {
		fault   buckets.Faults
		says    string
		nothing bool // is left
	}{
		"away":                {refused("PUT", "", cut), "", true},
		"503":                 {refused("PUT", "", answers(503, "SlowDown", "later")), "503", true},
		"full":                {refused("PUT", "", answers(507, "XMinioStorageFull", "full")), "full", true},
		"no right":            {refused("PUT", messagesName, answers(403, "AccessDenied", "no")), "AccessDenied", true},
		"no manifest":         {refused("PUT", manifestName, answers(403, "AccessDenied", "no")), "AccessDenied", false},
		"cut manifest":        {refused("PUT", manifestName, cut), "", false},
		"nothing to read":     {refused("GET", messagesName, answers(404, "NoSuchKey", "none")), "read back", true},
		"read cut":            {refused("GET", messagesName, cut), "read back", true},
		"other bytes":         {wrong(messagesName, flip), "damaged", true},
		"too short":           {wrong(messagesName, func(b []byte) []byte { return b[:len(b)-1] }), "damaged", true},
		"too long":            {wrong(messagesName, func(b []byte) []byte { return append(b, 0) }), "damaged", true},
		"empty":               {wrong(messagesName, func([]byte) []byte { return nil }), "damaged", true},
		"other manifest":      {wrong(manifestName, rename), "damaged", false},
		"manifest unreadable": {refused("GET", manifestName, answers(500, "InternalError", "no")), "read back", false},
		"a long answer":       {refused("PUT", "", answers(400, "Bad", strings.Repeat("x", 50_000))), "xxx...", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := newBucketServer(t)
			spool := t.TempDir()
			b := NewBucket(store, spool)
			s.Misbehave(c.fault)
			err := stored(t, b, messages(20))
			require.ErrorContains(t, err, c.says)
			require.Less(t, len(err.Error()), 1000)
			require.NotContains(t, err.Error(), "hidden-secret")
			requireEmpty(t, spool)
			if c.nothing {
				require.Empty(t, s.Keys())
			}

			s.Misbehave(buckets.Faults{})
			require.NoError(t, stored(t, b, messages(1)), "it works again")
			all, skipped, err := Find(t.Context(), store, []string{store.Root()})
			require.NoError(t, err)
			require.Empty(t, skipped)
			for _, e := range all {
				require.NoError(t, e.Verify(t.Context()), "what has a manifest is whole")
			}
		})
	}
}

// After a failure a store is asked with a small object first: nothing is read from the database for one that
// is away. A store that does not let objects be removed takes an archive all the same.
func TestAStoreThatWasAwayIsProbedFirst(t *testing.T) {
	s, store := newBucketServer(t)
	b := NewBucket(store, t.TempDir())
	s.Misbehave(buckets.Faults{Answer: func(w http.ResponseWriter, r *http.Request) bool {
		buckets.Refuse(w, http.StatusForbidden, "AccessDenied", "no")
		return true
	}})
	require.Error(t, stored(t, b, messages(1)))
	s.Requests()
	_, err := Begin(t.Context(), b, "orders")
	require.ErrorContains(t, err, "AccessDenied")
	requests := s.Requests()
	require.Len(t, requests, 1)
	require.Contains(t, requests[0], "PUT /cold/penstock/archive/+probe-")

	s.Misbehave(buckets.Faults{NoDrop: true})
	require.ErrorIs(t, store.Probe(t.Context()), ErrNoDelete)
	require.NoError(t, stored(t, b, messages(1)))
}

// A disk or a network that fails while a file is read is no damaged file.
func TestAFailedReadIsNoDamage(t *testing.T) {
	s, store := newBucketServer(t)
	b := NewBucket(store, t.TempDir())
	require.NoError(t, stored(t, b, messages(50)))
	all, _, err := Find(t.Context(), store, []string{store.Root()})
	require.NoError(t, err)
	s.Misbehave(buckets.Faults{Answer: func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(s.Object(r.URL.Path)[:40])
		return true // the connection ends before the body does
	}})
	err = all[0].Verify(t.Context())
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.False(t, errors.Is(err, ErrDamaged))
}

func TestSettingsOfAStoreAreChecked(t *testing.T) {
	good := S3Settings{Endpoint: "https://s3.example.com", Bucket: "cold", Prefix: "a/b", Region: "x"}
	require.NoError(t, good.Check(false))
	for says, change := range map[string]func(*S3Settings){
		"URL like":     func(s *S3Settings) { s.Endpoint = "s3.example.com" },
		"without path": func(s *S3Settings) { s.Endpoint += "/cold" },
		"http":         func(s *S3Settings) { s.Endpoint = "http://s3.example.com" },
		"only one":     func(s *S3Settings) { s.AccessKey = "k" },
		"slashes":      func(s *S3Settings) { s.Prefix = "/a" },
		". or ..":      func(s *S3Settings) { s.Prefix = "a/../b" },
		"bucket":       func(s *S3Settings) { s.Bucket = "a/b" },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, bad.Check(false), says)
	}
	for _, loopback := range []string{"http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"} {
		good.Endpoint = loopback
		require.NoError(t, good.Check(false))
	}
	good.Endpoint = "http://minio.internal:9000"
	require.NoError(t, good.Check(true))
}
