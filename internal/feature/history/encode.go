package history

import (
	"encoding/binary"

	"github.com/penstock-broker/penstock/hotpath/metrics"
)

// format is the first byte of an encoded histogram, and says which bounds its buckets have.
const format = 1

// encode returns a histogram in few bytes: for each bucket that is not empty, how many empty ones are
// before it, and its count. Nothing stands for an empty histogram.
func encode(h *metrics.Histogram) []byte {
	var out []byte
	gap := uint64(0)
	for _, n := range h.Counts {
		if n == 0 {
			gap++
			continue
		}
		if out == nil {
			out = append(out, format)
		}
		out = binary.AppendUvarint(binary.AppendUvarint(out, gap), n)
		gap = 0
	}
	return out
}

// addTo adds an encoded histogram to another one. What a later version or a person wrote there, and this
// one cannot read, counts nothing.
func addTo(h *metrics.Histogram, b []byte) {
	if len(b) == 0 || b[0] != format {
		return
	}
	b = b[1:]
	for at := uint64(0); len(b) > 0; at++ {
		gap, read := binary.Uvarint(b)
		if read <= 0 || gap >= metrics.Buckets {
			return
		}
		n, more := binary.Uvarint(b[read:])
		if at += gap; more <= 0 || at >= metrics.Buckets {
			return
		}
		h.Counts[at] += n
		b = b[read+more:]
	}
}
