package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

// A recorded job is a line of a file of listen --record.
type recorded struct {
	At                                                          time.Time
	ChannelID, ConsumerID, MessageID, JobID, ProducerID, Replay string
	ContentType, ContentEncoding                                string
	Attempt, Priority                                           int
	Headers                                                     map[string]string
	Payload                                                     []byte // base64
}

// mostRecorded bounds a line that is played: a payload of 32 MiB in base64, and what stands beside it.
const mostRecorded = 64 << 20

// A recorder appends jobs to a file. It is nil where nothing is recorded.
type recorder struct {
	mu sync.Mutex
	f  *os.File
}

// newRecorder opens the file, which only its owner may read: it has payloads.
func newRecorder(path string) (*recorder, error) {
	if path == "" {
		return nil, nil
	}
	if err := privatefile.Make(path); err != nil {
		return nil, local("--record: %v", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, local("--record: %v", err)
	}
	return &recorder{f: f}, nil
}

func (r *recorder) close() error {
	if r == nil {
		return nil
	}
	return r.f.Close()
}

// add writes a job. It is one write, so that a line is whole or at the end of the file.
func (r *recorder) add(to *forwarder, j copied) error {
	if r == nil {
		return nil
	}
	line, err := json.Marshal(recorded{At: time.Now().UTC(), ChannelID: to.channel, ConsumerID: to.consumer,
		MessageID: j.message, JobID: j.job, ProducerID: j.producer, Replay: j.replay, ContentType: j.contentType,
		ContentEncoding: j.coding, Attempt: j.attempt, Priority: j.priority, Headers: j.headers, Payload: j.payload})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err = r.f.Write(append(line, '\n')); err != nil {
		return local("--record: %v", err)
	}
	return nil
}

// playFile forwards the jobs of a file, without a broker. It is exitRefused where one of them was refused.
func (l *listening) playFile(ctx context.Context) error {
	f, err := os.Open(l.play)
	if err != nil {
		return local("--play: %v", err)
	}
	defer f.Close()
	if l.to, err = l.plainForwarder(); err != nil {
		return err
	}
	failed := false
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 64<<10), mostRecorded)
	for n := 1; lines.Scan(); n++ {
		var r recorded
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		if d.DisallowUnknownFields(); d.Decode(&r) != nil || r.MessageID == "" {
			return local("--play: line %d of %s is none of listen --record", n, l.play)
		}
		l.to.channel, l.to.consumer = r.ChannelID, r.ConsumerID
		a := l.deliver(ctx, copied{job: r.JobID, message: r.MessageID, producer: r.ProducerID, replay: r.Replay,
			contentType: r.ContentType, coding: r.ContentEncoding, attempt: r.Attempt, priority: r.Priority,
			headers: r.Headers, payload: r.Payload})
		if err := cmp.Or(a.said, ctx.Err()); err != nil {
			return err
		}
		failed = failed || a.verdict() != nil
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return local("--play: a line of %s is longer than %d bytes", l.play, mostRecorded)
	} else if err != nil && !errors.Is(err, io.EOF) {
		return local("--play: %v", err)
	}
	if failed {
		return verdict(exitRefused)
	}
	return nil
}
