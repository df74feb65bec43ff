package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// ErrNotFound means that the row does not exist.
var ErrNotFound = errors.New("durable: not found")

// ErrDuplicate means that the message is already stored: the channel has a message with the
// same Key, producer and content. The error is a *DuplicateError.
var ErrDuplicate = errors.New("durable: duplicate message ID in channel")

// ErrConflict means that another message of the channel has the Key, from another producer or
// with other content. The message of the call is not stored.
var ErrConflict = errors.New("durable: message ID of another message in channel")

// ErrStale means that a batch was built from stale knowledge and nothing of it is stored: a
// channel has more consumers than the audience in the messages, the node lease is lost, or
// the IDs are older than MaxIDAge. The caller refreshes its knowledge and inserts again with
// new IDs.
var ErrStale = errors.New("durable: stale audience, node lease or message ID")

// ErrPrecondition means that a precondition of a Put does not hold. Nothing is stored.
var ErrPrecondition = errors.New("durable: precondition of the change does not hold")

// ErrRejected means that the values of this row can never be stored. The other rows of its
// batch are not affected.
var ErrRejected = errors.New("durable: row rejected")

// ErrOutcomeUnknown means that the connection broke around COMMIT and the server could not be
// asked in time. Either the whole batch is stored or nothing of it.
var ErrOutcomeUnknown = errors.New("durable: outcome of the commit is unknown")

// ErrFailed means that the store did not carry out a call: it is unreachable, was too slow, or
// refused. Unless the error is also ErrOutcomeUnknown, nothing has changed.
var ErrFailed = errors.New("durable: the store failed")

// ErrFull means that a channel has as many consumers as message IDs can address.
var ErrFull = errors.New("durable: channel has the maximum number of consumers")

// ErrConsumerInvalid means that a Put would result in a push consumer without a callback URL.
var ErrConsumerInvalid = errors.New("durable: push consumer without callback URL")

// A DuplicateError contains the ID of the stored message.
type DuplicateError struct{ ID ident.ID }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v: held by %s", ErrDuplicate, e.ID) }

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// MaxIDAge bounds the age of a message ID when its row is inserted, by the server's clock. The
// reconciler scans only messages older than that, so no new row appears behind its scan.
const MaxIDAge = time.Second

// A ConsumerType tells whether the broker or the consumer starts a delivery.
type ConsumerType uint8

// The two types of consumer.
const (
	Push ConsumerType = iota
	Pull
)

func (t ConsumerType) String() string {
	if t == Pull {
		return "pull"
	}
	return "push"
}

// A Producer may publish to any channel whose token it knows.
type Producer struct {
	No        uint32 // internal number, in keys
	ID        string
	Name      string
	Token     string
	ChangedAt time.Time // UTC, milliseconds; each change of a resource has a second of its own
	Version   int64     // of the catalogue when last changed
}

// A Channel broadcasts every message to all its consumers.
type Channel struct {
	No        uint32
	ID        string
	Name      string
	Token     string
	Audience  int // consumers; a message posted now gets this many jobs
	ChangedAt time.Time
	Version   int64
}

// A Consumer gets one job for each message posted to its channel after its creation.
type Consumer struct {
	No          uint32
	ChannelNo   uint32
	Position    int // 0-based, in order of creation inside the channel, for ever
	ID          string
	Name        string
	Token       string
	CallbackURL string
	Type        ConsumerType
	Protocol    string // "" or "h2": HTTP/2 for deliveries
	Policy      string // record of package policy: the consumer's own settings
	ChangedAt   time.Time
	Version     int64
}

// A Put creates or updates a resource; the three kinds of resources share it. A nil field keeps
// the stored value. On creation Name defaults to the ID and Token to NewToken.
type Put struct {
	ID       string
	Name     *string
	Token    *string
	NewToken string // used on creation when Token is nil

	// Preconditions. The writing transaction checks them on the row that it replaces, so
	// only one of several writers with the same precondition passes.
	Exists          *bool     // nil: none; otherwise whether the resource must exist
	Revision        time.Time // zero: none; otherwise the required ChangedAt of the resource
	UnmodifiedSince time.Time // zero: none; compared in whole seconds, if the resource exists
}

// A ConsumerPut creates or updates a consumer of an existing channel.
type ConsumerPut struct {
	Put
	ChannelID   string
	CallbackURL *string
	Type        *ConsumerType // nil: push on creation
	Protocol    *string
	// Policy returns the new record for the stored one. It runs inside the transaction; nil
	// keeps the record. If it fails, its error is returned unchanged and nothing is stored.
	Policy func(record string) (string, error)
}

// Changes are the rows written after a version of the catalogue.
type Changes struct {
	Version   int64 // argument of the next Changes call
	Producers []Producer
	Channels  []Channel
	Consumers []Consumer
}

// A NodeLease is a broker's right to a node number until a time.
type NodeLease struct {
	No      uint16
	Token   [16]byte
	Expires time.Time // by the store's clock
}

// A Node is a node number with the broker that last leased it.
type Node struct {
	No      uint16
	Name    string
	Token   [16]byte
	Expires time.Time
	Alive   bool // by the store's clock
}

// A Message is a published message. It never changes after it is stored.
type Message struct {
	ID          ident.ID
	ChannelNo   uint32
	ProducerNo  uint32
	Audience    int    // consumers of the channel when it was stored: positions 0..Audience-1
	Priority    int    // 0..1023, higher first
	Key         string // the producer's message ID, "" if it gave none
	ContentType string
	Headers     []byte // metadata headers, "name:value\n" each, in the producer's order
	Payload     []byte
}

// PublicID is the ID of the message outside of the broker: the producer's own, or ID if the
// producer gave none.
func (m *Message) PublicID() string {
	if m.Key != "" {
		return m.Key
	}
	return m.ID.String()
}

// Bytes returns about how much memory the message takes.
func (m *Message) Bytes() int { return len(m.Payload) + len(m.Headers) + 256 }

// A Head has the fields of a message that the reconciler needs.
type Head struct {
	ID       ident.ID
	Audience int
	Priority int
}

// A JobStatus is the stored status of a job. A job without a row is Waiting: it is queued or in
// flight, which only the queue can distinguish.
type JobStatus uint8

// If a job has rows in several tables, the highest of these statuses counts. A delivered job
// stays delivered.
const (
	Waiting   JobStatus = iota
	Open                // failed or redriven, and not over
	Dead                // a dead letter
	Delivered           // over
)

// A JobState is the stored state of one job.
type JobState struct {
	Status     JobStatus
	Attempts   int   // attempts charged so far; of a delivered job, the one that succeeded
	ChangedMs  int64 // Unix ms of the last stored change
	NextMs     int64 // Open: Unix ms of the next attempt
	StatusCode int   // last HTTP status, 0 when none
	Error      string
}

// An OutcomeKind is the way in which an attempt ended.
type OutcomeKind uint8

// The three ends of an attempt.
const (
	OutcomeDelivered OutcomeKind = iota
	OutcomeRetry
	OutcomeDead
)

// An Outcome is the end of one attempt of one job. Recording it again changes nothing.
type Outcome struct {
	Kind       OutcomeKind
	ConsumerNo uint32
	ID         ident.ID // of the message
	Priority   int      // stored in open_jobs, from which the queue can be rebuilt
	Attempts   int      // attempts charged, this one included
	AtMs       int64    // Unix ms
	StatusCode int      // HTTP status of the consumer, 0 when there was none
	// Tracked is set if the job may have a row in open_jobs or dead_jobs, which the outcome
	// then removes. Without it a delivery takes no statement for such rows.
	Tracked bool

	// Retry and Dead only:
	NextMs     int64  // Retry: Unix ms of the next attempt
	Error      string // description of the failure, cut to 1 KiB
	Answer     []byte // first KiB of the consumer's answer
	DurationMs int64
}

// An OpenJob is a row of open_jobs.
type OpenJob struct {
	ID       ident.ID
	Priority int
	Attempts int
	NextMs   int64
}

// A DeadJob is a dead letter.
type DeadJob struct {
	ID         ident.ID
	Priority   int
	Attempts   int
	DiedMs     int64
	StatusCode int
	Reason     string
	Answer     []byte
}

// An Attempt is one failed attempt.
type Attempt struct {
	No         int
	AtMs       int64
	StatusCode int
	Error      string
	DurationMs int64
	Answer     []byte
}

// A Latest is the newest message of a channel.
type Latest struct {
	ChannelNo uint32
	ID        ident.ID // zero when the channel has no message
}
