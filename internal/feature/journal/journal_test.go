package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
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
	return Record{Msg: &durable.Message{ChannelNo: 3, ProducerNo: 4, Priority: 5, TTLMs: 6, Key: "k" + text,
		ContentType: "text/plain",
		Headers:     []byte("a:b\n"), Addressed: "\x05", Payload: []byte(text)}, Tried: ident.AtMillis(7)}
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
			if e.Lost {
				out = append(out, "lost")
				continue
			}
			out = append(out, string(e.Msg.Payload))
		}
		j.Settle(entries)
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
	require.False(t, entries[0].Lost)
	require.Equal(t, receipts[0], entries[0].Receipt)
	j.Settle(entries)
	require.False(t, j.Has(receipts[0]))
	require.Empty(t, files(t, data), "an empty journal has no files")
	require.Zero(t, j.State())
	require.NoError(t, j.Close())
}

func TestMessagesComeBackInOrderAfterARestartAndOnce(t *testing.T) {
	data, o := t.TempDir(), options()
	o.MaxBytes = 800 << 10
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

		for range 2 { // the second process finds a newer file behind the torn end
			j = open(t, data, options())
			put(t, j, "three")
			require.NoError(t, j.Close())
		}
		j = open(t, data, options())
		want := []string{"one", "three", "three"}
		if cut <= 8 { // only the end of the commit is missing: nobody was answered, and nothing is lost
			want = []string{"one", "two", "three", "three"}
		}
		require.Equal(t, want, texts(t, j), cut)
		require.Empty(t, kept(t, data))
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
	require.Equal(t, []string{"first one", "lost", "last one", "more"}, texts(t, j))
	require.Equal(t, []string{name + ".damaged"}, kept(t, data), "what was not understood is not deleted")
	require.Equal(t, 1, j.State().Damaged)
	require.NoError(t, j.Close())
}

// kept are the files of which a piece was not understood.
func kept(t *testing.T, data string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".damaged" {
			names = append(names, path)
		}
		return err
	}))
	return names
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
		require.NotErrorIs(t, err, ErrUnsure, "its end was cut off: the refusal is certain")
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
	receipts := put(t, j, sequence(0, 5)...)
	hold := func(j *Journal, n int, held ...string) {
		t.Helper()
		entries, err := j.Read(n, 1<<20)
		require.NoError(t, err)
		for _, e := range entries {
			e.Held = slices.Contains(held, string(e.Msg.Payload))
		}
		j.Settle(entries)
	}
	hold(j, 3, "1", "2")
	require.Equal(t, int64(2), j.Waiting())
	require.Equal(t, State{Waiting: 2, Bytes: j.State().Bytes, Held: 2, HeldBytes: j.State().HeldBytes}, j.State())
	require.True(t, j.Has(receipts[1]))
	require.False(t, j.Has(receipts[0]))
	entries, err := j.Read(10, 1<<20)
	require.NoError(t, err)
	require.Equal(t, "3", string(entries[0].Msg.Payload))
	j.Release(3)
	require.Equal(t, int64(4), j.Waiting())
	require.Equal(t, sequence(1, 5), texts(t, j))
	require.Zero(t, j.State())
	require.NoError(t, j.Close())
}

// What one channel holds must not keep what is over of others: after the time of their receipts a
// restart would store that again.
func TestWhatIsHeldIsWrittenAgainAndKeepsNothingElse(t *testing.T) {
	data, o := t.TempDir(), options()
	o.MaxBytes = 400 << 10
	j := open(t, data, o)
	receipts := map[string]Receipt{}
	held := func(text string) bool { return strings.HasPrefix(text, "held") }
	for i := range 1000 {
		text := fmt.Sprint(i)
		channel := uint32(4)
		if i%10 == 0 {
			text, channel = "held "+text, 3
		}
		r := record(text)
		r.Msg.ChannelNo = channel
		got, err := j.Append([]Record{r})
		require.NoError(t, err)
		receipts[text] = got[0]
	}
	settle := func(j *Journal) (over []string) {
		t.Helper()
		for range 1000 {
			entries, err := j.Read(64, 1<<20)
			require.NoError(t, err)
			if len(entries) == 0 {
				j.Move()
				return over
			}
			for _, e := range entries {
				if e.Held = held(string(e.Msg.Payload)); !e.Held {
					over = append(over, string(e.Msg.Payload))
				}
				require.Equal(t, receipts[string(e.Msg.Payload)], e.Receipt)
			}
			j.Settle(entries)
			j.Move()
		}
		t.Fatal("it does not end")
		return nil
	}
	require.Len(t, settle(j), 900)
	for range 3 {
		s := j.State()
		require.Equal(t, int64(100), s.Held)
		require.Zero(t, s.Waiting)
		require.Less(t, s.Bytes, 2*s.HeldBytes)
		require.True(t, j.Has(receipts["held 500"]), "its receipt is that of its first place")
		require.False(t, j.Has(receipts["501"]))
		require.NoError(t, j.Room(4, 100<<10))
		require.ErrorIs(t, j.Room(3, 390<<10), ErrFull)
		require.NoError(t, j.Close())
		j = open(t, data, o)
		require.Empty(t, settle(j), "what is over is not read again")
	}
	j.Release(3)
	var order []string
	for i := 0; i < 1000; i += 10 {
		order = append(order, fmt.Sprint("held ", i))
	}
	require.Equal(t, order, texts(t, j), "in the order in which they came")
	require.Zero(t, j.State())
	require.Empty(t, files(t, data))
	require.NoError(t, j.Close())
}

// A crash may leave an entry at its old place and at its new one.
func TestACrashWhileWhatIsHeldIsWrittenAgainLeavesBothInOrder(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	put(t, j, sequence(0, 4)...)
	entries, err := j.Read(4, 1<<20)
	require.NoError(t, err)
	for _, e := range entries[1:] {
		e.Held = true
	}
	j.Settle(entries)
	old := files(t, data)[0]
	before, err := os.ReadFile(old)
	require.NoError(t, err)
	j.Move()
	require.NoFileExists(t, old)
	put(t, j, "4")
	require.NoError(t, os.WriteFile(old, before, 0o600))
	require.NoError(t, j.Close())
	j = open(t, data, options())
	all, err := j.Read(100, 1<<20)
	require.NoError(t, err)
	var got []string
	for _, e := range all {
		got = append(got, string(e.Msg.Payload))
	}
	require.Equal(t, []string{"0", "1", "2", "3", "1", "2", "3", "4"}, got)
	require.Equal(t, all[1].Receipt, all[4].Receipt, "by which the store finds the second one")
	require.NoError(t, j.Close())
}

func TestAChannelMayHaveAsManyBytesAsAreFree(t *testing.T) {
	j := open(t, t.TempDir(), options())
	fill := func(channel uint32) (n int) {
		for ; ; n++ {
			r := Record{Msg: &durable.Message{ChannelNo: channel, Payload: make([]byte, 900)}}
			if _, err := j.Append([]Record{r}); err != nil {
				require.ErrorIs(t, err, ErrFull)
				return n
			}
		}
	}
	first, second, third := fill(1), fill(2), fill(3)
	require.InDelta(t, 500, first, 80)
	require.InDelta(t, 250, second, 40)
	require.InDelta(t, 125, third, 20)
	require.True(t, j.Waits(1))
	require.False(t, j.Waits(4))
	require.NoError(t, j.Close())
	j = open(t, j.Dir()+"/../..", options())
	require.ErrorIs(t, j.Room(1, 100_000), ErrFull, "a restart counts what is there")
	require.NoError(t, j.Room(4, 100_000))
	texts(t, j)
	require.False(t, j.Waits(1))
	require.NoError(t, j.Room(1, 500_000))
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
