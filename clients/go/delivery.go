package penstock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Delivery is a claimed job, as a handler gets it.
type Delivery struct {
	Queue, ID  string // the queue, and the ID of the job
	MessageID  string // the same at every attempt: by it a handler recognises a job that it has done
	ProducerID string
	Attempt    int // from 1
	LeasesLost int // leases of the job that ended without a word before
	GivenBack  int
	Priority   int

	Task            string // of X-Broker-Task, else of the payload; "": none
	Payload         []byte
	ContentType     string
	ContentEncoding string
	Headers         map[string]string
	// Of a payload that is a job, see Job.
	Args   []json.RawMessage
	Kwargs map[string]json.RawMessage
	Meta   map[string]json.RawMessage
	isJob  bool

	worker *Worker
	replay string // ID of the replay that repeats the job
	token  string // of the lease
	cancel context.CancelCauseFunc

	// Of the lease, guarded by leases.mu.
	renewAt, until time.Time // when it is renewed, and when it ends by the clock of this machine
	lost, reported bool
	response       *response // that goes along with the report
	once           sync.Once // it is settled
}

// Bind decodes the positional arguments of the job into pointers, in their order. It is an error if there
// are fewer arguments than pointers.
func (d *Delivery) Bind(to ...any) error {
	if len(d.Args) < len(to) {
		return fmt.Errorf("penstock: job %s has %d arguments, the handler needs %d", d.Task, len(d.Args), len(to))
	}
	for i, p := range to {
		if err := json.Unmarshal(d.Args[i], p); err != nil {
			return fmt.Errorf("penstock: argument %d of job %s: %w", i, d.Task, err)
		}
	}
	return nil
}

// A claimed is one entry of the answer to a claim.
type claimed struct {
	ID, Lease, Replay                        string
	Attempt, LeasesLost, GivenBack, Priority int
	Message                                  struct {
		MessageID, ProducerID, Payload, PayloadEncoding, ContentType, ContentEncoding string
		Headers                                                                       map[string]string
	}
}

// delivery is the entry as a handler gets it.
func (w *Worker) delivery(e claimed) (*Delivery, error) {
	if e.ID == "" || e.Lease == "" {
		return nil, errors.New("a job has no ID or no lease")
	}
	m := e.Message
	d := &Delivery{Queue: w.queue, ID: e.ID, MessageID: m.MessageID, ProducerID: m.ProducerID, Attempt: e.Attempt,
		LeasesLost: e.LeasesLost, GivenBack: e.GivenBack, Priority: e.Priority, ContentType: m.ContentType,
		ContentEncoding: m.ContentEncoding, Headers: m.Headers, Payload: []byte(m.Payload), worker: w, token: e.Lease,
		replay: e.Replay}
	if m.PayloadEncoding == "base64" {
		var err error
		if d.Payload, err = base64.StdEncoding.DecodeString(m.Payload); err != nil {
			return nil, fmt.Errorf("the payload of job %s cannot be read: %w", e.ID, err)
		}
	}
	for name, value := range m.Headers {
		if strings.EqualFold(name, "X-Broker-Task") {
			d.Task = value
		}
	}
	var job struct {
		Task   string
		Args   []json.RawMessage
		Kwargs map[string]json.RawMessage
		Meta   map[string]json.RawMessage
	}
	if json.Unmarshal(d.Payload, &job) == nil && job.Task != "" {
		d.isJob, d.Args, d.Kwargs, d.Meta = true, job.Args, job.Kwargs, job.Meta
		if d.Task == "" {
			d.Task = job.Task
		}
	}
	return d, nil
}
