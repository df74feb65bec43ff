package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// messages are some of one channel, with payloads of every kind.
func messages(n int) []durable.Message {
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	out := make([]durable.Message, n)
	for i := range out {
		out[i] = durable.Message{ID: ids.Next(), ProducerNo: 1, Priority: i, ContentType: "text/plain",
			Headers: []byte("X-Kind:a: b\nContent-Encoding:gzip\n"), Payload: fmt.Appendf(nil, "payload \"%d\"\n", i)}
	}
	if n > 1 {
		out[0].Payload, out[1].Payload = nil, []byte{0xff, 0x00, '\n', 0xfe}
		out[1].Key = "order-1"
	}
	return out
}

// sealed writes messages to a file and returns it.
func sealed(t *testing.T, dir string, msgs []durable.Message) *Entry {
	t.Helper()
	f, err := Begin(t.Context(), Dir(dir), "orders")
	require.NoError(t, err)
	states := []durable.JobState{{Status: durable.Delivered, Attempts: 2, ChangedMs: 1000, StatusCode: 204},
		{Status: durable.Waiting}, {Status: durable.Dead, Error: "no"}}
	for i := range msgs {
		require.NoError(t, f.Add(&msgs[i], "shop", []string{"a", "b", "c"}, states))
	}
	before, _, err := Find(t.Context(), nil, []string{dir})
	require.NoError(t, err)
	require.NoError(t, f.Seal(t.Context()))
	f.Abandon() // changes nothing
	after, _, err := Find(t.Context(), nil, []string{dir})
	require.NoError(t, err)
	require.Len(t, after, len(before)+1, "it is not there before it is whole")
	for _, e := range after {
		if e.First == msgs[0].ID {
			return e
		}
	}
	t.Fatal("the file is not found")
	return nil
}

func records(t *testing.T, e *Entry) (all []*Record) {
	t.Helper()
	require.NoError(t, e.Each(t.Context(), func(r *Record, _ []byte) error {
		all = append(all, r)
		return nil
	}))
	return all
}

func TestWhatIsArchivedIsReadBack(t *testing.T) {
	dir, in := t.TempDir(), messages(5)
	e := sealed(t, dir, in)
	require.NoError(t, e.Verify(t.Context()))
	got := records(t, e)
	require.Len(t, got, len(in))
	for i, r := range got {
		require.Equal(t, in[i].ID, r.ID)
		require.Equal(t, in[i].PublicID(), r.MessageID)
		require.Equal(t, "orders shop", r.Channel+" "+r.Producer)
		require.Equal(t, i, r.Priority)
		require.Equal(t, string(in[i].Payload), string(r.Body()))
		require.Equal(t, map[string]string{"X-Kind": "a: b", "Content-Encoding": "gzip"}, r.Headers)
		require.Len(t, r.Jobs, 2, "of a job that is not over there is nothing to say")
		require.Equal(t, "a DELIVERED 2", fmt.Sprint(r.Jobs[0].Consumer, " ", r.Jobs[0].State, " ", r.Jobs[0].Attempts))
		require.Equal(t, "c DEAD no", r.Jobs[1].Consumer+" "+r.Jobs[1].State+" "+r.Jobs[1].Error)
	}

	text, err := os.ReadFile(filepath.Join(e.Folder, "manifest.json"))
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(text, &m))
	body, err := os.ReadFile(e.Messages())
	require.NoError(t, err)
	sum := sha256.Sum256(body)
	require.Equal(t, []any{"orders", 5.0, in[0].ID.String(), in[4].ID.String(), hex.EncodeToString(sum[:]),
		float64(len(body))}, []any{m["Channel"], m["Count"], m["First"], m["Last"], m["SHA256"], m["Bytes"]})
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if name != dir {
			require.Zero(t, info.Mode().Perm()&0o077, "nobody else reads %s", name)
		}
		return nil
	}))
	for _, name := range []string{e.Folder, e.Messages(), filepath.Join(e.Folder, manifestName)} {
		again, err := Open(t.Context(), disk{}, name)
		require.NoError(t, err)
		require.Equal(t, e, again)
	}
}

func TestADamagedFileIsSeen(t *testing.T) {
	whole := sealed(t, t.TempDir(), messages(40))
	good, err := os.ReadFile(whole.Messages())
	require.NoError(t, err)
	manifest, err := os.ReadFile(filepath.Join(whole.Folder, manifestName))
	require.NoError(t, err)
	write := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(whole.Folder, name), text, 0o600))
	}
	for at := 0; at < len(good); at += 37 {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		write(messagesName, bad)
		require.ErrorIs(t, whole.Verify(t.Context()), ErrDamaged, "byte %d", at)
	}
	for _, bad := range [][]byte{nil, good[:len(good)-1], good[:len(good)/2], append(bytes.Clone(good), 'x'),
		append(bytes.Clone(good), good...)} {
		write(messagesName, bad)
		require.ErrorIs(t, whole.Verify(t.Context()), ErrDamaged, "%d bytes", len(bad))
	}
	write(messagesName, good)
	require.NoError(t, whole.Verify(t.Context()))

	for _, bad := range []string{"", "{", "[]", "{}", `{"Version":1,"Count":1,"File":"../../etc/passwd","SHA256":"` +
		strings.Repeat("0", 64) + `"}`} {
		write(manifestName, []byte(bad))
		_, err := Open(t.Context(), disk{}, whole.Folder)
		require.ErrorIs(t, err, ErrDamaged, bad)
		_, skipped, err := Find(t.Context(), nil, []string{filepath.Dir(whole.Folder)})
		require.NoError(t, err)
		require.Len(t, skipped, 1)
	}
	other := bytes.Replace(manifest, []byte(`"Count": 40`), []byte(`"Count": 41`), 1)
	require.NotEqual(t, manifest, other)
	write(manifestName, other)
	e, err := Open(t.Context(), disk{}, whole.Folder)
	require.NoError(t, err)
	require.ErrorIs(t, e.Verify(t.Context()), ErrDamaged)
	write(manifestName, bytes.Replace(manifest, []byte(`"Version": 1`), []byte(`"Version": 2`), 1))
	_, err = Open(t.Context(), disk{}, whole.Folder)
	require.ErrorContains(t, err, "version 2")
}

// What a broker left that stopped in the middle is no part of the archive, and goes after a while.
func TestAFileThatWasNotFinishedIsNoPartOfTheArchive(t *testing.T) {
	dir, in := t.TempDir(), messages(3)
	lost, err := Begin(t.Context(), Dir(dir), "orders")
	require.NoError(t, err)
	require.NoError(t, lost.Add(&in[0], "shop", nil, nil))
	sealed(t, dir, in)
	require.DirExists(t, lost.folder, "another broker may be at it")
	old := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{lost.out.Name(), lost.folder} {
		require.NoError(t, os.Chtimes(name, old, old))
	}
	sealed(t, dir, messages(1))
	require.NoDirExists(t, lost.folder)
	require.Error(t, lost.Seal(t.Context()), "its folder is gone")
	all, skipped, err := Find(t.Context(), nil, []string{dir})
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Len(t, all, 2)

	none, err := Begin(t.Context(), Dir(dir), "orders")
	require.NoError(t, err)
	require.Error(t, none.Seal(t.Context()), "a file without a message")
	require.NoDirExists(t, none.folder)
}

// A folder that cannot be written, or a file in its place, is an error before anything is removed.
func TestAFolderThatTakesNothingIsAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "orders"), nil, 0o600))
	_, err := Begin(t.Context(), Dir(dir), "orders")
	require.Error(t, err)
	_, err = Begin(t.Context(), Dir(filepath.Join(dir, "orders", "below")), "orders")
	require.Error(t, err)
}

// A write that fails in the middle, as on a full disk, fails the file for good and leaves nothing.
func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	dir, in := t.TempDir(), messages(2)
	f, err := Begin(t.Context(), Dir(dir), "orders")
	require.NoError(t, err)
	require.NoError(t, f.Add(&in[0], "shop", nil, nil))
	require.NoError(t, f.out.Close()) // the next write fails
	in[1].Payload = bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if err := f.Add(&in[1], "shop", nil, nil); err != nil {
		require.Error(t, f.Add(&in[0], "shop", nil, nil))
	}
	require.Error(t, f.Seal(t.Context()))
	entries, err := os.ReadDir(filepath.Join(dir, "orders"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// Messages that are in two files, after a crash, do not stand in each other's way.
func TestTheSameMessagesMayBeArchivedTwice(t *testing.T) {
	dir, in := t.TempDir(), messages(3)
	sealed(t, dir, in)
	sealed(t, dir, in)
	all, _, err := Find(t.Context(), nil, []string{dir})
	require.NoError(t, err)
	require.Len(t, all, 2)
}

func TestMessagesAreFoundAndListed(t *testing.T) {
	dir, in := t.TempDir(), messages(12)
	e := sealed(t, dir, in)
	for pattern, want := range map[string]int{`"11"`: 1, "^payload": 10, "order-1": 1, "^shop$": 12, "^X-Kind: a": 12,
		in[3].ID.String(): 1, "nothing": 0, "(?i)PAYLOAD": 10} {
		var out bytes.Buffer
		n, err := Grep(t.Context(), &out, []*Entry{e}, regexp.MustCompile(pattern))
		require.NoError(t, err)
		require.Equal(t, want, n, pattern)
		require.Equal(t, want, strings.Count(out.String(), "\n"))
	}
	var out bytes.Buffer
	require.NoError(t, List(&out, []*Entry{e}, false))
	require.Regexp(t, `orders +20\S+Z +20\S+Z +12 +\d+ +`+regexp.QuoteMeta(e.Folder), out.String())
	out.Reset()
	require.NoError(t, List(&out, []*Entry{e}, true))
	var line Entry
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, e.SHA256, line.SHA256)
}

func TestAFileHasABound(t *testing.T) {
	f, err := Begin(t.Context(), Dir(t.TempDir()), "orders")
	require.NoError(t, err)
	defer f.Abandon()
	m := messages(1)[0]
	m.Payload = bytes.Repeat([]byte("x"), 16<<20)
	for i := range 4 {
		require.False(t, f.Full(), i)
		require.NoError(t, f.Add(&m, "shop", nil, nil))
	}
	require.True(t, f.Full())
}
