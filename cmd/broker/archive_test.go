package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/buckets"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// archived returns how often each message is in an archive, by its ID.
func archived(t *testing.T, dir string) map[string]int {
	t.Helper()
	all, skipped, err := archive.Find(t.Context(), nil, []string{dir})
	require.NoError(t, err)
	require.Empty(t, skipped)
	found := map[string]int{}
	for _, e := range all {
		require.NoError(t, e.Verify(t.Context()))
		require.NoError(t, e.Each(t.Context(), func(r *archive.Record, _ []byte) error {
			found[r.MessageID]++
			return nil
		}))
	}
	return found
}

// Whatever happens to the archive and the broker, each message is stored or archived: first the folder takes
// nothing, then the broker dies with a file that is sealed, whose messages it has not removed. What is
// archived comes back by restore, is not delivered by itself, and is delivered to a consumer that asks for it.
func TestFaultEachMessageIsStoredOrArchived(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		dir := filepath.Join(t.TempDir(), "archive")
		require.NoError(t, os.WriteFile(dir, nil, 0o600)) // a file where the folder is to be
		w.with(quick...).with("BROKER_RETENTION=60500ms", "BROKER_ARCHIVE_DIR="+dir)
		sink := newSink(t, nil)
		p := w.start()
		s := p.stage(t, "k="+sink.URL)
		var ids, paths []string
		for i := range 5 {
			id := fmt.Sprint("order-", i)
			ids, paths = append(ids, id), append(paths, s.publish("body "+id, "X-Broker-Message-ID", id))
		}
		s.put("/channel/~alerts/consumer/oncall", "type", "pull", "token", "t")
		eventually(t, "the archive to fail", func() bool { return p.gauge(t, "penstock_archive_failing") == 1 })
		for _, path := range paths {
			require.Equal(t, 200, s.do("GET", path, "").status, "nothing is removed")
		}
		eventually(t, "the alert", func() bool {
			return strings.Contains(p.do("GET", "/channel/~alerts/messages", "").body, "/message/")
		})

		p.kill()
		require.NoError(t, os.Remove(dir))
		p = w.start(envKill + "=" + failpoint.AfterArchive + ":1")
		p.awaitEnd()
		p = w.start()
		eventually(t, "the removal", func() bool {
			for _, path := range paths {
				if p.do("GET", path, "").status != http.StatusNotFound {
					return false
				}
			}
			return true
		})
		found := archived(t, dir)
		for _, id := range ids {
			require.Equal(t, 2, found[id], "a repeat does no harm, a loss would: %s", id)
		}
		require.Zero(t, p.gauge(t, "penstock_archive_failing"))

		env := []string{"PENSTOCK_URL=" + p.base}
		code, out, errs := w.with(env...).command("archive", "grep", "body order-3", dir)
		require.Zero(t, code, errs)
		require.Equal(t, 2, strings.Count(out, `"MessageID":"order-3"`))
		code, out, errs = w.with(env...).command("archive", "restore", filepath.Join(dir, s.channel))
		require.Zero(t, code, errs)
		require.Equal(t, "5 messages restored, 5 were restored before\n", out)
		require.Len(t, p.do("GET", "/channel/"+s.channel+"-restored/messages", "").json(t)["Result"], 5)
		for _, id := range ids {
			require.Equal(t, 1, sink.times("body "+id), "it is not delivered by itself")
		}
		p.put("/channel/"+s.channel+"-restored/consumer/again", "callbackUrl", sink.URL, "since", "2020-01-01T00:00:00Z")
		eventually(t, "the delivery to who asks for it", func() bool {
			for _, id := range ids {
				if sink.times("body "+id) != 2 {
					return false
				}
			}
			return true
		})
		code, _, errs = w.with(env...).command("archive", "restore", dir)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "nothing was restored")
	})
}

// A bucket takes the place of the folder: while it takes nothing, or gives other bytes back, nothing is removed and
// broker check says so; then each message is in it, and comes back by its name.
func TestMessagesAreArchivedInABucket(t *testing.T) {
	parallel(t)
	store := buckets.New(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(buckets.SecretKey+"\n"), 0o600))
	w := embeddedWorld(t).with(quick...).with("BROKER_RETENTION=60500ms", "BROKER_ARCHIVE_S3_ENDPOINT="+store.URL,
		"BROKER_ARCHIVE_S3_BUCKET=cold", "BROKER_ARCHIVE_S3_PREFIX=a/b", "BROKER_ARCHIVE_S3_REGION="+buckets.Region,
		"BROKER_ARCHIVE_S3_ACCESS_KEY="+buckets.AccessKey, "BROKER_ARCHIVE_S3_SECRET_KEY_FILE="+secret)
	code, out, _ := w.command("check")
	require.Zero(t, code, out)
	require.Contains(t, out, "an object was written to s3://cold/a/b, read and removed")
	store.Misbehave(buckets.Faults{Answer: func(answer http.ResponseWriter, _ *http.Request) bool {
		buckets.Refuse(answer, http.StatusForbidden, "AccessDenied", "no right")
		return true
	}})
	code, out, _ = w.command("check")
	require.Equal(t, 1, code, out)
	require.Regexp(t, `mend +archive +.*AccessDenied: no right`, out)

	p := w.start()
	s := p.stage(t) // without consumers each message is over
	var paths []string
	for i := range 3 {
		paths = append(paths, s.publish(fmt.Sprint("body ", i), "X-Broker-Message-ID", fmt.Sprint("order-", i)))
	}
	failing := func() bool { return p.gauge(t, "penstock_archive_failing") == 1 }
	eventually(t, "the archive to fail", failing)
	store.Misbehave(buckets.Faults{Read: func(_ string, body []byte) []byte {
		if len(body) > 0 {
			body[0] ^= 1
		}
		return body
	}})
	store.Requests()
	eventually(t, "a probe that is not read back", func() bool {
		return strings.Contains(strings.Join(store.Requests(), " "), "GET /cold/a/b/+probe-")
	})
	require.True(t, failing())
	for _, path := range paths {
		require.Equal(t, 200, p.do("GET", path, "").status, "nothing is removed")
	}
	store.Misbehave(buckets.Faults{})
	eventually(t, "the removal", func() bool {
		for _, path := range paths {
			if p.do("GET", path, "").status != http.StatusNotFound {
				return false
			}
		}
		return true
	})
	require.False(t, failing())
	client := w.with("PENSTOCK_URL=" + p.base)
	code, out, errs := client.command("archive", "ls")
	require.Zero(t, code, errs)
	require.Contains(t, out, "s3://cold/a/b/"+s.channel+"/")
	code, out, errs = client.command("archive", "grep", "^body 1$")
	require.Zero(t, code, errs)
	require.Equal(t, 1, strings.Count(out, "\n"))
	code, out, errs = client.command("archive", "restore", "s3://cold/a/b/"+s.channel)
	require.Zero(t, code, errs)
	require.Equal(t, "3 messages restored, 0 were restored before\n", out)
	left, err := filepath.Glob(filepath.Join(w.setting("BROKER_DATA_DIR"), "archive-spool", "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
	code, _, errs = w.with("BROKER_ARCHIVE_S3_SECRET_KEY=also").command("archive", "ls")
	require.Equal(t, exitUsage, code)
	require.NotContains(t, errs, buckets.SecretKey)
}

// A damaged file restores nothing, neither of itself nor of the others, and says so.
func TestADamagedFileRestoresNothing(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start()
	dir := t.TempDir()
	writeArchive(t, dir, "orders", "one", "two")
	writeArchive(t, dir, "orders", "three")
	files, err := filepath.Glob(filepath.Join(dir, "orders", "*", "messages.jsonl.zst"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	good, err := os.ReadFile(files[1])
	require.NoError(t, err)
	bad := append([]byte{}, good...)
	bad[len(bad)/2] ^= 1
	require.NoError(t, os.WriteFile(files[1], bad, 0o600))
	client := w.with("PENSTOCK_URL=" + p.base)
	code, _, errs := client.command("archive", "restore", files[0], files[1])
	require.Equal(t, 1, code)
	require.Contains(t, errs, "damaged")
	require.Contains(t, errs, "nothing was restored")
	require.Equal(t, 404, p.do("GET", "/channel/orders-restored", "").status)

	require.NoError(t, os.WriteFile(files[1], good, 0o600))
	code, out, errs := client.command("archive", "-channel", "elsewhere", "restore", files[0], files[1])
	require.Zero(t, code, errs)
	require.Equal(t, "3 messages restored, 0 were restored before\n", out)
	require.Equal(t, "0s", p.do("GET", "/channel/elsewhere", "").json(t)["Retention"], "they stay")

	for _, args := range [][]string{{}, {"restore"}, {"grep"}, {"what", "x"}, {"ls"}, {"ls", filepath.Join(dir, "none")},
		{"grep", "("}, {"restore", t.TempDir()}, {"grep", "no such text", dir}} {
		code, _, errs := client.command(append([]string{"archive"}, args...)...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
	code, out, _ = client.with("BROKER_ARCHIVE_DIR="+dir).command("archive", "ls")
	require.Zero(t, code)
	require.Equal(t, 3, strings.Count(out, "\n"))
}

// writeArchive archives a message for each payload.
func writeArchive(t *testing.T, dir, channel string, payloads ...string) {
	t.Helper()
	f, err := archive.Begin(t.Context(), archive.Dir(dir), channel)
	require.NoError(t, err)
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	for _, payload := range payloads {
		m := durable.Message{ID: ids.Next(), ContentType: "text/plain", Payload: []byte(payload)}
		require.NoError(t, f.Add(&m, "shop", nil, nil))
	}
	require.NoError(t, f.Seal(t.Context()))
}
