package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func signer(part []byte) (sum [4]byte) {
	for i, b := range part {
		sum[i%4] = sum[i%4]*31 + b + 7
	}
	return sum
}

func options() Options {
	return Options{MaxBytes: 1 << 20, MaxAge: time.Hour, Sign: signer, Log: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, data string, o Options) *Journal {
	t.Helper()
	j, err := Open(data, o)
	require.NoError(t, err)
	return j
}

func record(text string) Record {
	return Record{Msg: &durable.Message{ChannelNo: 3, ProducerNo: 4, Priority: 5, TTLMs: 6, Key: "k" + text, ContentType: "text/plain",
		Headers: []byte("a:b\n"), Addressed: "\x05", Payload: []byte(text)}, Tried: ident.AtMillis(7)}
}

func put(t *testing.T, j *Journal, texts ...string) []Receipt {
	t.Helper()
	var all []Record
	for _, text := range texts {
		all = append(all, record(text))
	}
	receipts, err := j.Append(all)
	require.NoError(t, err)
	return receipts
}

// texts reads everything and advances over it.
func texts(t *testing.T, j *Journal) (out []string) {
	t.Helper()
	for range 10_000 {
		entries, err := j.Read(7, 1<<20)
		require.NoError(t, err)
		if len(entries) == 0 {
			return out
		}
		for _, e := range entries {
			out = append(out, string(e.Msg.Payload))
		}
		last := entries[len(entries)-1].Seq
		j.Advance(last, last, len(entries))
	}
	t.Fatal("the journal does not end")
	return nil
}

func sequence(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func files(t *testing.T, data string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".wal" {
			info, err := d.Info()
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
			names = append(names, path)
		}
		return err
	}))
	return names
}

func TestAMessageComesBackAsItWasAndItsReceiptIsKnown(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	receipts := put(t, j, "hello")
	require.True(t, j.Has(receipts[0]))
	got, ok := ParseReceipt(receipts[0].String(), signer)
	require.True(t, ok)
	require.Equal(t, receipts[0], got)
	for i := range len(receipts[0].String()) {
		forged := []byte(receipts[0].String())
		forged[i] ^= 1
		_, ok := ParseReceipt(string(forged), signer)
		require.False(t, ok, i)
	}
	entries, err := j.Read(10, 1<<20)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, record("hello"), entries[0].Record)
	require.Equal(t, receipts[0], entries[0].Receipt)
	j.Advance(entries[0].Seq, entries[0].Seq, 1)
	require.False(t, j.Has(receipts[0]))
	require.Empty(t, files(t, data), "an empty journal has no files")
	require.Zero(t, j.State())
	require.NoError(t, j.Close())
}

func TestMessagesComeBackInOrderAfterARestartAndOnce(t *testing.T) {
	data, o := t.TempDir(), options()
	o.MaxBytes = 400 << 10
	j := open(t, data, o)
	first := put(t, j, sequence(0, 1)...)
	for i := 1; i < 2000; i++ {
		put(t, j, sequence(i, i+1)...)
	}
	require.NoError(t, j.Close())
	require.Greater(t, len(files(t, data)), 1)

	j = open(t, data, o)
	require.Equal(t, int64(2000), j.Waiting())
	require.True(t, j.Has(first[0]))
	put(t, j, sequence(2000, 2010)...)
	require.Equal(t, sequence(0, 2010), texts(t, j))
	require.Empty(t, files(t, data))
	require.NoError(t, j.Close())
}

func TestManyAtOnceShareAFlush(t *testing.T) {
	disk := &faultyDisk{}
	o := options()
	o.Files = disk.files()
	j := open(t, t.TempDir(), o)
	defer func() { require.NoError(t, j.Close()) }()
	put(t, j, "first")
	disk.slow.Store(true)
	before := disk.syncs.Load()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() { put(t, j, fmt.Sprint(i)) })
	}
	wg.Wait()
	require.Less(t, disk.syncs.Load()-before, int64(30))
	require.Len(t, texts(t, j), 101)
}

func TestATornLastRecordIsDropped(t *testing.T) {
	for cut := int64(1); cut < 60; cut += 7 {
		data := t.TempDir()
		j := open(t, data, options())
		put(t, j, "one")
		put(t, j, "two")
		require.NoError(t, j.Close())
		name := files(t, data)[0]
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(name, info.Size()-cut))

		j = open(t, data, options())
		put(t, j, "three")
		require.Equal(t, []string{"one", "three"}, texts(t, j), cut)
		require.NoError(t, j.Close())
	}
}

func TestARecordWithOtherBytesIsSkippedAndTheOthersStay(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	put(t, j, "first one", "middle", "last one")
	put(t, j, "more")
	require.NoError(t, j.Close())
	name := files(t, data)[0]
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	at := indexOf(b, "middle")
	b[at] ^= 0xff
	require.NoError(t, os.WriteFile(name, b, 0o600))
	j = open(t, data, options())
	require.Equal(t, []string{"first one", "last one", "more"}, texts(t, j))
	require.NoError(t, j.Close())
}

func indexOf(b []byte, text string) int {
	for i := len(b) - len(text); ; i-- {
		if string(b[i:i+len(text)]) == text {
			return i
		}
	}
}

func TestAFileThatFailsIsNeverWrittenAgain(t *testing.T) {
	for _, kind := range []string{"write", "flush"} {
		disk := &faultyDisk{}
		o := options()
		o.Files = disk.files()
		data := t.TempDir()
		j := open(t, data, o)
		put(t, j, "before")
		disk.fail(kind)
		_, err := j.Append([]Record{record("lost")})
		require.ErrorIs(t, err, ErrFailed)
		_, err = j.Append([]Record{record("at once")})
		require.ErrorIs(t, err, ErrFailed, "the disk is left alone for a moment")
		disk.fail("")
		require.Eventually(t, func() bool {
			_, err := j.Append([]Record{record("after")})
			return err == nil
		}, 10*time.Second, 50*time.Millisecond)
		require.Len(t, files(t, data), 2)
		require.NoError(t, j.Close())
		j = open(t, data, options())
		require.Equal(t, []string{"before", "after"}, texts(t, j), kind)
		require.NoError(t, j.Close())
	}
}

func TestTheJournalIsBoundedInBytesAndAge(t *testing.T) {
	o := options()
	o.MaxBytes = 64 << 10
	data := t.TempDir()
	j := open(t, data, o)
	n := 0
	for ; n < 10_000; n++ {
		if _, err := j.Append([]Record{record(fmt.Sprint(n))}); err != nil {
			require.ErrorIs(t, err, ErrFull)
			break
		}
	}
	require.Greater(t, n, 100)
	var size int64
	for _, name := range files(t, data) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		size += info.Size()
	}
	require.LessOrEqual(t, size, o.MaxBytes)
	require.Equal(t, sequence(0, n), texts(t, j))
	put(t, j, "room again")
	require.NoError(t, j.Close())

	o.MaxAge = 30 * time.Millisecond
	j = open(t, data, o)
	_, err := j.Read(1, 1)
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond)
	_, err = j.Append([]Record{record("late")})
	require.ErrorIs(t, err, ErrOld)
	require.NoError(t, j.Close())
}

func TestTwoBrokersNeverShareAJournal(t *testing.T) {
	data := t.TempDir()
	a, b := open(t, data, options()), open(t, data, options())
	require.NotEqual(t, a.Dir(), b.Dir())
	put(t, a, "a")
	put(t, b, "b")
	left, busy, err := Left(data, options())
	require.NoError(t, err)
	require.True(t, busy)
	require.Empty(t, left)
	require.NoError(t, b.Close())
	left, busy, err = Left(data, options())
	require.NoError(t, err)
	require.True(t, busy)
	require.Len(t, left, 1)
	require.Equal(t, []string{"b"}, texts(t, left[0]))
	require.NoError(t, left[0].Close())
	require.NoError(t, a.Close())
}

func TestAJournalOfAnotherStoreIsNotRead(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	put(t, j, "a")
	require.NoError(t, j.Close())
	o := options()
	o.Sign = func([]byte) [4]byte { return [4]byte{1, 2, 3, 4} }
	left, busy, err := Left(data, o)
	require.ErrorIs(t, err, ErrForeign)
	require.Empty(t, left)
	require.False(t, busy)
	other := open(t, data, o)
	require.NotEqual(t, j.Dir(), other.Dir(), "what is written behind the messages of another store waits for ever")
	put(t, other, "b")
	require.NoError(t, other.Close())
	left, _, err = Left(data, o)
	require.ErrorIs(t, err, ErrForeign)
	require.Len(t, left, 1)
	require.Equal(t, []string{"b"}, texts(t, left[0]))
	require.NoError(t, left[0].Close())
	j = open(t, data, options())
	require.Equal(t, []string{"a"}, texts(t, j))
	require.NoError(t, j.Close())
}

func TestHeldMessagesComeBackAndStayOnDisk(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	put(t, j, sequence(0, 5)...)
	entries, err := j.Read(3, 1<<20)
	require.NoError(t, err)
	j.Advance(entries[2].Seq, entries[0].Seq, 3) // 1 and 2 are held
	require.Equal(t, int64(2), j.Waiting())
	entries, err = j.Read(10, 1<<20)
	require.NoError(t, err)
	require.Equal(t, "3", string(entries[0].Msg.Payload))
	j.Rewind()
	require.Equal(t, int64(4), j.Waiting())
	require.Equal(t, sequence(1, 5), texts(t, j))
	require.NoError(t, j.Close())
}

func TestReadersAndWritersRunAtTheSameTime(t *testing.T) {
	j := open(t, t.TempDir(), options())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				if _, err := j.Append([]Record{record(fmt.Sprintf("%d-%d", w, i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[string]bool{}
	for deadline := time.Now().Add(30 * time.Second); len(seen) < 800 && time.Now().Before(deadline); {
		for _, text := range texts(t, j) {
			require.False(t, seen[text])
			seen[text] = true
		}
	}
	require.Len(t, seen, 800)
	wg.Wait()
	require.NoError(t, j.Close())
}

// A faultyDisk counts flushes and fails on demand.
type faultyDisk struct {
	syncs atomic.Int64
	slow  atomic.Bool
	mode  atomic.Pointer[string]
}

func (d *faultyDisk) files() disk { return disk{fault: d.fault} }

func (d *faultyDisk) fail(operation string) { d.mode.Store(&operation) }

func (d *faultyDisk) fault(operation string) error {
	if operation == "flush" {
		d.syncs.Add(1)
		if d.slow.Load() {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if m := d.mode.Load(); m != nil && *m == operation {
		return errors.New("no space left on the test's disk")
	}
	return nil
}
