package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// image writes three commits to a journal and returns its folder, the name of their file, its bytes
// and the receipts.
func image(t *testing.T) (data, name string, b []byte, receipts map[string]Receipt) {
	t.Helper()
	data = t.TempDir()
	j := open(t, data, options())
	receipts = map[string]Receipt{}
	for _, commit := range [][]string{{"one a", "one b"}, {"two"}, {"three a", "three b", "three c"}} {
		for i, r := range put(t, j, commit...) {
			receipts[commit[i]] = r
		}
	}
	require.NoError(t, j.Close())
	name = files(t, data)[0]
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return data, name, b, receipts
}

// settleAll reads everything, and returns the messages and the receipts that are lost everywhere.
func settleAll(t *testing.T, j *Journal) (found []string, lost []Receipt) {
	t.Helper()
	entries, err := j.Read(1000, 1<<20)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Lost && !e.Elsewhere {
			lost = append(lost, e.Receipt)
		} else if !e.Lost {
			found = append(found, string(e.Msg.Payload))
		}
	}
	j.Settle(entries)
	return found, lost
}

// Each byte of three commits is another one, in the newest file and in one before it: each message
// comes back, or is reported as lost and its file is kept.
func TestEachFlippedByteLosesAMessageAtMostAndSaysSo(t *testing.T) {
	data, name, b, receipts := image(t)
	for _, sealed := range []bool{false, true} {
		for _, bits := range []byte{0x02, 0x40} {
			if sealed && bits == 0x02 {
				continue
			}
			for at := range b {
				require.NoError(t, os.RemoveAll(filepath.Join(data, "journal")))
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
				id := receipts["two"].journal()
				require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(name), idName), id[:], 0o600))
				require.NoError(t, os.WriteFile(name, b, 0o600))
				if sealed {
					j := open(t, data, options())
					put(t, j, "newer")
					require.NoError(t, j.Close())
				}
				other := slices.Clone(b)
				other[at] ^= bits
				require.NoError(t, os.WriteFile(name, other, 0o600))
				j := open(t, data, options())
				found, lost := settleAll(t, j)
				said := fmt.Sprintf("byte %d ^ %x, sealed %t: %v, %d lost", at, bits, sealed, found, len(lost))
				for text, r := range receipts {
					is := slices.Contains(lost, r) || slices.Contains(lost, r.Place())
					require.NotEqual(t, is, slices.Contains(found, text), "%s: %s", said, text)
				}
				require.LessOrEqual(t, len(lost), 1, said)
				if sealed {
					require.Contains(t, found, "newer", said)
				}
				if sealed || len(lost) > 0 {
					require.Equal(t, []string{name + damagedSuffix}, kept(t, data), said)
					after, err := os.ReadFile(name + damagedSuffix)
					require.NoError(t, err)
					require.Equal(t, other, after, said)
				}
				require.Empty(t, files(t, data), said)
				require.NoError(t, j.Close())
			}
		}
	}
}

// heldAgain writes messages of three channels, of which those of one are held and were written again,
// and returns the folder, the two files of these by name, and their receipts.
func heldAgain(t *testing.T) (data string, images map[string][]byte, receipts map[string]Receipt) {
	t.Helper()
	data, receipts = t.TempDir(), map[string]Receipt{}
	j := open(t, data, options())
	for i, text := range []string{"a", "over 1", "b", "c", "over 2", "over 3", "d"} {
		r := put(t, j, text)
		if i != 1 && i != 4 && i != 5 {
			receipts[text] = r[0]
		}
	}
	entries, err := j.Read(100, 1<<20)
	require.NoError(t, err)
	for _, e := range entries {
		_, e.Held = receipts[string(e.Msg.Payload)]
	}
	j.Settle(entries)
	j.Move()
	require.NoError(t, j.Close())
	names := files(t, data)
	require.Len(t, names, 1)
	images = map[string][]byte{names[0]: nil, names[0] + receiptsSuffix: nil}
	for name := range images {
		images[name], err = os.ReadFile(name)
		require.NoError(t, err)
	}
	return data, images, receipts
}

// A message that is held is not where its receipt says: its receipt stands twice, so no byte of either
// file hides it.
func TestTheReceiptOfAMessageThatWasWrittenAgainSaysThatItIsLost(t *testing.T) {
	data, images, receipts := heldAgain(t)
	for flipped, b := range images {
		for _, sealed := range []bool{false, true} {
			for at := range b {
				for name, b := range images {
					require.NoError(t, os.WriteFile(name, b, 0o600))
				}
				if sealed {
					j := open(t, data, options())
					put(t, j, "newer")
					require.NoError(t, j.Close())
				}
				other := slices.Clone(b)
				other[at] ^= 0x40
				require.NoError(t, os.WriteFile(flipped, other, 0o600))
				j := open(t, data, options())
				found, lost := settleAll(t, j)
				said := fmt.Sprintf("byte %d of %s, sealed %t: %v, %d lost", at, filepath.Ext(flipped), sealed, found, len(lost))
				for text, r := range receipts {
					require.NotEqual(t, slices.Contains(lost, r), slices.Contains(found, text), "%s: %s", said, text)
				}
				require.LessOrEqual(t, len(lost), 1, said)
				require.NoError(t, j.Close())
				require.Empty(t, files(t, data), said)
				beside, err := filepath.Glob(filepath.Join(data, "journal", "*", "*"+receiptsSuffix))
				require.NoError(t, err)
				require.Empty(t, beside, said)
				for _, name := range kept(t, data) {
					require.NoError(t, os.Remove(name))
				}
			}
		}
	}
}

// A whole file of held messages that is unreadable, or gone while the broker runs.
func TestTheReceiptsOfAFileThatIsGoneSayThatItsMessagesAreLost(t *testing.T) {
	_, images, receipts := heldAgain(t)
	for _, gone := range []bool{false, true} {
		data := t.TempDir()
		dir := filepath.Join(data, "journal", "0")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		id := receipts["a"].journal()
		require.NoError(t, os.WriteFile(filepath.Join(dir, idName), id[:], 0o600))
		var wal string
		for name, b := range images {
			name = filepath.Join(dir, filepath.Base(name))
			if filepath.Ext(name) == ".wal" {
				wal = name
				b = slices.Clone(b)
				if !gone {
					for i := headerBytes; i < len(b)-frameBytes; i++ {
						b[i] ^= 0x5a
					}
				}
			}
			require.NoError(t, os.WriteFile(name, b, 0o600))
		}
		j := open(t, data, options())
		if gone {
			require.NoError(t, os.Remove(wal))
		}
		found, lost := settleAll(t, j)
		require.Empty(t, found)
		require.ElementsMatch(t, []Receipt{receipts["a"], receipts["b"], receipts["c"], receipts["d"]}, lost,
			"gone: %t", gone)
		require.NoError(t, j.Close())
	}
}

// The end of the newest file is zeros, as after a crash in the middle of its write. Where the messages
// are at their old places, too, that was it. Otherwise they are lost.
func TestTheEndOfAFileOfHeldMessagesThatIsGoneIsNoTornWrite(t *testing.T) {
	for _, crash := range []bool{false, true} {
		data := t.TempDir()
		j := open(t, data, options())
		receipts := put(t, j, "over", "a", "b", "c")
		entries, err := j.Read(10, 1<<20)
		require.NoError(t, err)
		for _, e := range entries[1:] {
			e.Held = true
		}
		j.Settle(entries)
		old := files(t, data)[0]
		before, err := os.ReadFile(old)
		require.NoError(t, err)
		j.Move()
		require.NoError(t, j.Close())
		again := files(t, data)[0]
		b, err := os.ReadFile(again)
		require.NoError(t, err)
		info := j.parts[0].info
		clear(b[scanFile(b, info, j.id, signer, true).places[1].at-frameBytes:])
		require.NoError(t, os.WriteFile(again, b, 0o600))
		if crash {
			require.NoError(t, os.WriteFile(old, before, 0o600))
		}
		j = open(t, data, options())
		found, lost := settleAll(t, j)
		if crash {
			require.Equal(t, []string{"over", "a", "b", "c", "a"}, found)
			require.Empty(t, lost)
			require.Empty(t, kept(t, data))
		} else {
			require.Equal(t, []string{"a"}, found)
			require.Equal(t, receipts[2:], lost)
			require.Equal(t, []string{again + damagedSuffix}, kept(t, data))
		}
		require.NoError(t, j.Close())
	}
}

// A crash leaves a message at its old place and at its new one, and one of them is damaged: it is not lost.
func TestAMessageThatIsLostAtOneOfTwoPlacesAfterACrashIsNotLost(t *testing.T) {
	for _, damaged := range []string{"old", "new"} {
		for bit := range 8 {
			data := t.TempDir()
			j := open(t, data, options())
			put(t, j, "over", "held")
			entries, err := j.Read(10, 1<<20)
			require.NoError(t, err)
			entries[1].Held = true
			j.Settle(entries)
			old := files(t, data)[0]
			before, err := os.ReadFile(old)
			require.NoError(t, err)
			j.Move()
			require.NoError(t, j.Close())
			again := files(t, data)[0]
			b, err := os.ReadFile(again)
			require.NoError(t, err)
			if damaged == "old" {
				before[indexOf(before, "held")-1] ^= 1 << bit
			} else {
				b[indexOf(b, "held")-1] ^= 1 << bit
			}
			require.NoError(t, os.WriteFile(old, before, 0o600))
			require.NoError(t, os.WriteFile(again, b, 0o600))
			j = open(t, data, options())
			all, err := j.Read(10, 1<<20)
			require.NoError(t, err)
			require.Len(t, all, 3)
			require.Equal(t, damaged == "old", all[1].Lost && all[1].Elsewhere)
			require.Equal(t, damaged == "new", all[2].Lost && all[2].Elsewhere)
			require.Equal(t, all[1].Receipt.Place(), all[2].Receipt.Place())
			j.Settle(all)
			require.Zero(t, j.Waiting())
			require.NoError(t, j.Close())
		}
	}
}

// A crash between the two files leaves the receipts alone, and the messages where they were.
func TestReceiptsWithoutTheirFileAreRemovedAfterACrash(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	put(t, j, "a")
	require.NoError(t, j.Close())
	stray := filepath.Join(j.Dir(), "00000000000000000900-0000000000000009.wal"+receiptsSuffix)
	require.NoError(t, os.WriteFile(stray, make([]byte, ReceiptSize), 0o600))
	torn := filepath.Join(j.Dir(), "00000000000000000901-000000000000000a.wal")
	for _, name := range []string{torn, torn + receiptsSuffix} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	j = open(t, data, options())
	for _, name := range []string{stray, torn, torn + receiptsSuffix} {
		require.NoFileExists(t, name)
	}
	require.Equal(t, []string{"a"}, texts(t, j))
	require.NoError(t, j.Close())
}

// A piece of a sealed file is zeros, as a disk returns it that lost a sector: the index tells how
// many messages were in it.
func TestAPieceOfASealedFileThatIsGoneIsCounted(t *testing.T) {
	data, o := t.TempDir(), options()
	o.MaxBytes = 64 << 10
	j := open(t, data, o)
	for i := range 120 {
		put(t, j, fmt.Sprintf("message %03d", i))
	}
	require.NoError(t, j.Close())
	names := files(t, data)
	require.Greater(t, len(names), 1)
	images := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		images[name] = b
	}
	for at := 0; at+4096 <= len(images[names[0]]); at += 1000 {
		for name, b := range images {
			b = slices.Clone(b)
			if name == names[0] {
				clear(b[at : at+4096])
			}
			require.NoError(t, os.WriteFile(name, b, 0o600))
		}
		j = open(t, data, o)
		found, lost := settleAll(t, j)
		require.Equal(t, 120, len(found)+len(lost), at)
		require.LessOrEqual(t, len(lost), 4096/100, at)
		require.Equal(t, []string{names[0] + damagedSuffix}, kept(t, data), at)
		require.NoError(t, os.Remove(names[0]+damagedSuffix))
		require.NoError(t, j.Close())
	}
}

// A journal that an earlier release has written is read: its entries do not contain their length.
func TestTheEntriesOfAnEarlierReleaseAreRead(t *testing.T) {
	data := t.TempDir()
	j := open(t, data, options())
	a := newAppending(false)
	for _, text := range []string{"one", "two"} {
		r := record(text)
		a.add(&r)
	}
	for i, b := range a.entries {
		b[4] = 1
		a.entries[i] = append(b[:fixedBytesV1:fixedBytesV1], b[fixedBytes:]...)
	}
	require.NoError(t, j.enqueue(a))
	<-a.done
	require.NoError(t, a.err)
	put(t, j, "three")
	require.NoError(t, j.Close())
	name := files(t, data)[0]
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	b[headerBytes] ^= 2 // the type of the first frame
	require.NoError(t, os.WriteFile(name, b, 0o600))
	j = open(t, data, options())
	require.True(t, j.Has(a.receipts[1]))
	require.Equal(t, []string{"one", "two", "three"}, texts(t, j))
	require.NoError(t, j.Close())
}
