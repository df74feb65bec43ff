package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Bounds of real bodies read with --payload-from.
const (
	maxPayloadFiles = 10_000
	maxPayloadBytes = 512 << 20 // in all
	maxBodyBytes    = 16 << 20  // of one
)

// Payloads makes the bodies of messages. It is safe for concurrent use.
type Payloads struct {
	size   int
	filler []byte

	bodies [][]byte // real ones; nil: synthetic
	text   []bool   // the body may stand in a JSON string after escaping
}

// NewPayloads returns synthetic bodies of that many bytes: the identity, then
// printable filler that differs from message to message and does not compress to nothing.
func NewPayloads(size int) (*Payloads, error) {
	if size < IdentitySize || size > maxBodyBytes {
		return nil, fmt.Errorf("a payload of %d bytes: want %d (the identity) to %d", size, IdentitySize, maxBodyBytes)
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

// ReadPayloads takes every regular file of a folder, or one file, as bodies. The
// identity of a message then travels in a metadata header.
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
		if len(body) > maxBodyBytes || total > maxPayloadBytes || len(p.bodies) == maxPayloadFiles {
			return fmt.Errorf("%s: more than %d files, %d bytes in one or %d in all", name, maxPayloadFiles, maxBodyBytes, maxPayloadBytes)
		}
		p.bodies = append(p.bodies, body)
		p.text = append(p.text, utf8.Valid(body))
		p.size += len(body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	if len(p.bodies) == 0 {
		return nil, errors.New("read payloads: no regular file there")
	}
	p.size /= len(p.bodies)
	return p, nil
}

// Size is the mean length of a body in bytes.
func (p *Payloads) Size() int { return p.size }

// Real reports whether bodies come from files: the identity is not inside.
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

// Text reports whether the body of a message is valid UTF-8.
func (p *Payloads) Text(seq uint64) bool {
	return !p.Real() || p.text[seq%uint64(len(p.bodies))]
}

// identityOf finds who a delivered message says it is: in its header where
// bodies are real, else at the front of the body.
func identityOf(header, body []byte) (Identity, error) {
	if len(header) > 0 {
		return ParseIdentity(bytes.TrimSpace(header))
	}
	return ParseIdentity(body)
}

// mix is the finalizer of SplitMix64: every bit of x decides about every bit of
// the result. It makes deterministic choices per message without storing them.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
