package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
)

// Bounds of real bodies read with --payload-from.
const (
	maxPayloads     = 10_000
	maxPayloadBytes = 512 << 20 // in all
	maxBodyBytes    = 16 << 20  // of one
)

// Payloads returns the bodies of messages. It is safe for concurrent use.
type Payloads struct {
	size   int
	filler []byte

	bodies [][]byte // real ones; nil: synthetic
	names  []string // of the bodies, escaped for a header
}

// NewPayloads returns synthetic bodies of that many bytes: the identity, then printable filler that
// differs between messages and does not compress to almost nothing.
func NewPayloads(size int) (*Payloads, error) {
	if size < IdentitySize || size > maxBodyBytes {
		return nil, fmt.Errorf("a payload of %d bytes: want %d (size of the identity) to %d", size, IdentitySize,
			maxBodyBytes)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	filler := make([]byte, size+fillerShift)
	state := uint64(1)
	for i := range filler {
		state = mix(state + 1)
		filler[i] = alphabet[state>>58]
	}
	return &Payloads{size: size, filler: filler}, nil
}

// fillerShift is how far the filler of different messages is shifted.
const fillerShift = 1021

// ReadPayloads reads one file, or every regular file of a folder, as bodies. The identity of a
// message then travels in a metadata header.
func ReadPayloads(path string) (*Payloads, error) {
	p := &Payloads{}
	total := 0
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		body, err := io.ReadAll(io.LimitReader(f, maxBodyBytes+1))
		if err != nil {
			return err
		}
		total += len(body)
		if len(body) > maxBodyBytes || total > maxPayloadBytes || len(p.bodies) == maxPayloads {
			return fmt.Errorf("%s: more than %d files, %d bytes in one or %d in all", name, maxPayloads, maxBodyBytes,
				maxPayloadBytes)
		}
		label, err := filepath.Rel(path, name)
		if err != nil {
			return err
		}
		p.add(label, body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	return p.complete()
}

// ReadPayloadField reads bodies from a JSON file: an array of objects, each with an array in that
// field. Every element of those arrays is a body, byte for byte as in the file. The name of a body
// is the field "name" of its object and its index in the array.
func ReadPayloadField(path, field string) (*Payloads, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPayloadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	if len(text) > maxPayloadBytes {
		return nil, fmt.Errorf("read payloads: %s has more than %d bytes", path, maxPayloadBytes)
	}
	var objects []map[string]json.RawMessage
	if err := json.Unmarshal(text, &objects); err != nil {
		return nil, fmt.Errorf("read payloads: %s: %w", path, err)
	}
	p := &Payloads{}
	for i, o := range objects {
		var name string
		if json.Unmarshal(o["name"], &name) != nil {
			name = strconv.Itoa(i)
		}
		var bodies []json.RawMessage
		if err := json.Unmarshal(o[field], &bodies); err != nil {
			return nil, fmt.Errorf("read payloads: %s: field %q of object %d: %w", path, field, i, err)
		}
		for k, body := range bodies {
			if len(body) > maxBodyBytes || len(p.bodies) == maxPayloads {
				return nil, fmt.Errorf("read payloads: %s: more than %d bodies or %d bytes in one", path, maxPayloads, maxBodyBytes)
			}
			p.add(fmt.Sprintf("%s.%d", name, k), body)
		}
	}
	return p.complete()
}

// add adds a body. URL escapes make any name fit into a header.
func (p *Payloads) add(name string, body []byte) {
	p.bodies = append(p.bodies, body)
	p.names = append(p.names, url.PathEscape(name))
	p.size += len(body)
}

// complete ends the reading of real bodies.
func (p *Payloads) complete() (*Payloads, error) {
	if len(p.bodies) == 0 {
		return nil, errors.New("read payloads: no body there")
	}
	p.size /= len(p.bodies)
	return p, nil
}

// Bodies is the number of real bodies, 0 when they are synthetic.
func (p *Payloads) Bodies() int { return len(p.bodies) }

// Name returns the name of the body from a file that a message has, empty if the body is synthetic.
func (p *Payloads) Name(seq uint64) string {
	if !p.Real() {
		return ""
	}
	return p.names[seq%uint64(len(p.names))]
}

// Size is the mean length of a body in bytes.
func (p *Payloads) Size() int { return p.size }

// Real reports whether the bodies come from files, which do not contain the identity.
func (p *Payloads) Real() bool { return p.bodies != nil }

// Len returns the length of the body of a message in bytes.
func (p *Payloads) Len(seq uint64) int {
	if p.Real() {
		return len(p.bodies[seq%uint64(len(p.bodies))])
	}
	return p.size
}

// Append appends the body of a message to b.
func (p *Payloads) Append(b []byte, id Identity) []byte {
	if p.Real() {
		return append(b, p.bodies[id.Seq%uint64(len(p.bodies))]...)
	}
	b = id.Append(b)
	shift := int(mix(id.Seq) % fillerShift)
	return append(b, p.filler[shift:shift+p.size-IdentitySize]...)
}

// identityOf reads the identity of a delivered message: from its header if bodies come from files,
// otherwise from the front of the body.
func identityOf(header, body []byte) (Identity, error) {
	if len(header) > 0 {
		return ParseIdentity(bytes.TrimSpace(header))
	}
	return ParseIdentity(body)
}

// mix is the finalizer of SplitMix64: every bit of x affects every bit of the result. It makes
// deterministic choices per message without stored state.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
