package objectstore

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// onEachServer runs a test with each server, without and with trailers.
func onEachServer(t *testing.T, test func(t *testing.T, store *archive.S3)) {
	for name, start := range map[string]func(*testing.T) string{"versitygw": gateway, "gofakes3": fake} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			for _, trailers := range []bool{false, true} {
				t.Run(fmt.Sprint("trailers=", trailers), func(t *testing.T) {
					s := settingsOf(url)
					s.Trailers, s.Prefix = trailers, fmt.Sprint(s.Prefix, "/", trailers)
					require.NoError(t, s.Check(false))
					store, err := archive.NewS3(s)
					require.NoError(t, err)
					test(t, store)
				})
			}
		})
	}
}

// seal archives messages of a channel with random payloads of a size.
func seal(t *testing.T, store *archive.S3, channel string, n, size int) {
	t.Helper()
	f, err := archive.Begin(t.Context(), archive.NewBucket(store, t.TempDir()), channel)
	require.NoError(t, err)
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	for i := range n {
		m := durable.Message{ID: ids.Next(), ContentType: "text/plain", Headers: []byte("X-Kind:test\n"),
			Payload: fmt.Appendf(nil, "order %d ", i)}
		if size > 0 {
			m.Payload = make([]byte, size)
			_, _ = rand.Read(m.Payload)
		}
		require.NoError(t, f.Add(&m, "shop", []string{"billing"}, []durable.JobState{{Status: durable.Delivered}}))
	}
	require.NoError(t, f.Seal(t.Context()))
}

func find(t *testing.T, store *archive.S3, names ...string) []*archive.Entry {
	t.Helper()
	all, skipped, err := archive.Find(t.Context(), store, names)
	require.NoError(t, err)
	require.Empty(t, skipped)
	return all
}

func TestAnArchiveInARealStore(t *testing.T) {
	onEachServer(t, func(t *testing.T, store *archive.S3) {
		require.NoError(t, store.Probe(t.Context()))
		seal(t, store, "orders", 100, 0)
		seal(t, store, "orders", 1, 0)
		seal(t, store, "~alerts", 1, 0)
		seal(t, store, "large", 3, 8<<20) // random bytes, so the file has 24 MiB and more
		all := find(t, store, store.Root())
		require.Len(t, all, 4, "a probe leaves nothing")
		for _, e := range all {
			require.NoError(t, e.Verify(t.Context()))
		}
		orders := find(t, store, store.Root()+"/orders")
		require.Len(t, orders, 2)
		require.Len(t, find(t, store, orders[0].Folder, orders[1].Messages()), 2)
		var out bytes.Buffer
		n, err := archive.Grep(t.Context(), &out, orders, regexp.MustCompile(`^order 42 $`))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestAStoreSaysWhatIsWrong(t *testing.T) {
	url := gateway(t)
	for says, change := range map[string]func(*archive.S3Settings){
		"SignatureDoesNotMatch": func(s *archive.S3Settings) { s.SecretKey = "another-secret" },
		"XAdminUserNotFound":    func(s *archive.S3Settings) { s.AccessKey = "somebody" },
		"NoSuchBucket":          func(s *archive.S3Settings) { s.Bucket = "another-bucket" },
	} {
		s := settingsOf(url)
		change(&s)
		store, err := archive.NewS3(s)
		require.NoError(t, err)
		err = store.Probe(t.Context())
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), s.SecretKey)
	}
}
