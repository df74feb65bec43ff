package journal

import (
	"errors"
	"os"
	"slices"
)

// The receipts of entries that are written again are on disk twice: in each entry, and in a file
// beside theirs. Their place tells them no more, so an entry of which a byte is another one would be
// lost under a receipt that no producer has.

// receiptsSuffix ends the name of a file with the receipts of the entries of another file, in their
// order. Each receipt is signed, which is its checksum.
const receiptsSuffix = ".receipts"

// writeReceipts writes the receipts of the entries that are about to be written into a part. A crash
// between the two leaves the entries at their old places, and receipts of nothing, which the next
// start removes.
func (j *Journal) writeReceipts(p *part, receipts []Receipt) error {
	b := make([]byte, 0, len(receipts)*ReceiptSize)
	for _, r := range receipts {
		b = append(b, r[:]...)
	}
	f, err := j.o.Files.Create(j.dir, p.name()+receiptsSuffix, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readReceipts returns what the disk has of the receipts of a part. Without them each intact entry
// still has its own.
func (j *Journal) readReceipts(p *part) []byte {
	if !p.twice {
		return nil
	}
	b, _, err := j.readFile(p.name() + receiptsSuffix)
	if err != nil {
		j.log.Warn("the receipts of a file of the journal cannot be read", "file", j.path(p), "error", err)
	}
	return b
}

// dropReceipts removes the receipts of a file that is gone. If that fails, the next start does it.
func (j *Journal) dropReceipts(name string) {
	if err := j.o.Files.Delete(j.dir, name); err != nil && !errors.Is(err, os.ErrNotExist) {
		j.log.Warn("receipts of the journal cannot be removed", "file", name, "error", err)
	}
}

// compareCopies looks for the entries that are lost in one file and intact in another one, which are
// the two places of an entry that a crash leaves. Without a copy elsewhere the end of a file that is
// missing was not cut off by a crash, but is lost.
func (j *Journal) compareCopies(scans []*scan) {
	if !slices.ContainsFunc(scans, (*scan).lacks) {
		return
	}
	intact := map[uint64]bool{} // by the place in the receipt
	for _, s := range scans {
		for _, p := range s.places {
			if p.at > 0 {
				intact[p.receipt.seq()] = true
			}
		}
	}
	for _, s := range scans {
		for i := len(s.places); s.torn != 0 && i < len(s.receipts)/ReceiptSize; i++ {
			if r, ok := s.second(i); ok && !intact[r.seq()] {
				s.torn = 0
				s.pieces++
				s.lose(s.base+uint64(len(s.receipts)/ReceiptSize), Receipt{})
			}
		}
		for i, p := range s.places {
			if p.at == 0 && intact[s.lost(i).seq()] {
				j.elsewhere[p.seq] = true
			}
		}
	}
}

// lacks reports whether the file lacks entries.
func (s *scan) lacks() bool {
	return s.torn != 0 && len(s.receipts) > 0 || slices.ContainsFunc(s.places, func(p place) bool { return p.at == 0 })
}

// second returns the receipt of an entry that is beside its file.
func (s *scan) second(i int) (r Receipt, ok bool) {
	if len(s.receipts) < (i+1)*ReceiptSize {
		return r, false
	}
	r = Receipt(s.receipts[i*ReceiptSize : (i+1)*ReceiptSize])
	return r, r.signedBy(s.sign)
}
