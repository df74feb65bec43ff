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

// settleAll reads everything, and returns the messages and the receipts that are lost.
func settleAll(t *testing.T, j *Journal) (found []string, lost []Receipt) {
	t.Helper()
	entries, err := j.Read(1000, 1<<20)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Lost {
			lost = append(lost, e.Receipt)
		} else {
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
