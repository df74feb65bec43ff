package standby

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/feature/journal"
)

// sendTo is send to a channel, for which the journal must take the message.
func (p *taker) sendTo(t *testing.T, channel uint32, text string) *journal.Receipt {
	t.Helper()
	sub := p.Submit(t.Context(), accept.Terms{Patience: time.Minute, Since: time.Now()}, time.Second,
		[]*durable.Message{{ChannelNo: channel, Payload: []byte(text)}})
	defer sub.Release()
	sub.Wait()
	r, ok := sub.Receipt(0)
	require.True(t, ok, "%v", sub.Outcome(0))
	return &r
}

func (f *faultyStore) setPaused(t *testing.T, p *taker, channel int, paused bool) {
	t.Helper()
	f.Lock()
	f.Version++
	f.Channels[channel-1].Paused, f.Channels[channel-1].Version = paused, f.Version
	f.Unlock()
	require.NoError(t, p.catalogue.Refresh(t.Context()))
}

func (f *faultyStore) twoChannels() {
	f.Version++
	f.Channels = append(f.Channels, durable.Channel{No: 2, ID: "c2", Version: f.Version})
}

// What a paused channel has in the journal keeps nothing of other channels there: once the store has
// forgotten their receipts, a restart would store it again.
func TestAPausedChannelKeepsNoMessageOfAnotherOneInTheJournal(t *testing.T) {
	f := newFaultyStore()
	f.twoChannels()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	p, d, stop := startJournal(t, f.Store, data, 1<<20)
	var held []string
	for i := range 100 {
		p.sendTo(t, 1, fmt.Sprint("other ", i))
		if i%10 == 0 {
			held = append(held, fmt.Sprint("held ", i))
			p.sendTo(t, 2, held[len(held)-1])
		}
	}
	f.setPaused(t, p, 2, true)
	f.set(nil)
	require.Eventually(t, func() bool {
		s := p.State()
		return s.Waiting == 0 && s.Held == int64(len(held)) && s.Bytes < 2*s.HeldBytes
	}, 30*time.Second, 5*time.Millisecond)
	stop()
	require.Len(t, f.stored, 100)
	require.Len(t, d.all, 100)
	f.stored = nil // what the end of receipts and identities does
	p, d, stop = startJournal(t, f.Store, data, 1<<20)
	require.Eventually(t, func() bool { return p.State().Held == int64(len(held)) }, 30*time.Second,
		5*time.Millisecond)
	f.requireStored(t)
	f.setPaused(t, p, 2, false)
	require.Eventually(t, func() bool { s := p.State(); return s.Waiting+s.Held+s.Bytes == 0 }, 30*time.Second,
		5*time.Millisecond)
	stop()
	var stored []string
	for _, text := range f.stored {
		stored = append(stored, strings.Join(strings.Fields(text)[:2], " "))
	}
	require.Equal(t, held, stored, "in the order in which they came, each once")
	require.Len(t, d.all, len(held))
}

// A held message is written again at another place, and the disk returns another byte of its receipt
// there: the one that its producer has says that it is lost.
func TestTheReceiptOfAHeldMessageThatTheDiskLostSaysLost(t *testing.T) {
	f := newFaultyStore()
	f.twoChannels()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	p, _, stop := startJournal(t, f.Store, data, 1<<20)
	var held []*journal.Receipt
	for i := range 4 {
		p.sendTo(t, 1, fmt.Sprint("other ", i))
		held = append(held, p.sendTo(t, 2, fmt.Sprint("held ", i)))
	}
	f.setPaused(t, p, 2, true)
	f.set(nil)
	require.Eventually(t, func() bool {
		s := p.State()
		return s.Waiting == 0 && s.Held == 4 &&
			s.Bytes < 2*s.HeldBytes
	}, 30*time.Second, 5*time.Millisecond)
	stop()
	files, err := filepath.Glob(filepath.Join(data, "journal", "*", "*.wal"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	at := bytes.Index(b, held[2][:])
	require.Positive(t, at)
	b[at+journal.ReceiptSize-1] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	f.setPaused(t, p, 2, false)
	p, d, _ := startJournal(t, f.Store, data, 1<<20)
	for i, r := range held {
		got := d.await(t, r)
		require.Equal(t, i == 2, got.Reason == "lost", "%d: %+v", i, got)
		require.Equal(t, i == 2, got.Message == "", "%d: %+v", i, got)
	}
	require.Eventually(t, func() bool { return p.State().Damaged == 1 }, 30*time.Second, 5*time.Millisecond)
}

func TestAMessageForWhichTheStoreFailsKeepsNoOtherOneInTheJournal(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	inner := f.OnInsert
	f.OnInsert = func(call int, batch []*durable.Message) []error {
		if slices.ContainsFunc(batch, func(m *durable.Message) bool {
			return strings.HasPrefix(string(m.Payload), "poison")
		}) {
			return slices.Repeat([]error{durable.ErrFailed}, len(batch))
		}
		return inner(call, batch)
	}
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	var good []*journal.Receipt
	for i := range 10 {
		good = append(good, p.sendTo(t, 1, fmt.Sprint("good ", i)))
		p.sendTo(t, 1, fmt.Sprint("poison ", i))
	}
	f.set(nil)
	for _, r := range good {
		require.NotEmpty(t, d.await(t, r).Message)
	}
	require.Eventually(t, func() bool { s := p.State(); return s.Held == 10 && s.Waiting == 0 }, 30*time.Second,
		5*time.Millisecond)
	receipt, err := p.send(time.Minute, &durable.Message{Payload: []byte("direct")})
	require.NoError(t, err)
	require.Nil(t, receipt, "the store is well: its failure for one message says nothing of others")
}

func TestTheReceiptOfAMessageThatTheDiskLostSaysLost(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	p, _, stop := startJournal(t, f.Store, data, 1<<20)
	receipts := map[string]*journal.Receipt{}
	for _, text := range []string{"first", "second", "third"} {
		receipts[text] = p.sendTo(t, 1, text)
	}
	stop()
	files, err := filepath.Glob(filepath.Join(data, "journal", "*", "*.wal"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[bytes.Index(b, []byte("second"))] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	f.set(nil)
	p, d, _ := startJournal(t, f.Store, data, 1<<20)
	require.NotEmpty(t, d.await(t, receipts["first"]).Message)
	require.NotEmpty(t, d.await(t, receipts["third"]).Message)
	got := d.await(t, receipts["second"])
	require.Empty(t, got.Message)
	require.Equal(t, "lost", got.Reason)
	require.Eventually(t, func() bool { return p.State().Damaged == 1 }, 30*time.Second, 5*time.Millisecond)
	require.FileExists(t, files[0]+".damaged")
}
