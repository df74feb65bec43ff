package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// ErrNotFound says that there is no such row.
var ErrNotFound = errors.New("durable: not found")

// ErrDuplicate says that the message is stored already: the channel has one with
// the same Key, of the same producer and with the same content. The error in hand
// is a *DuplicateError.
var ErrDuplicate = errors.New("durable: duplicate message ID in channel")

// ErrConflict says that the Key is another message's in the channel: of another
// producer, or with other content. This message is not stored.
var ErrConflict = errors.New("durable: message ID of another message in channel")

// ErrStale says that a batch was built from old knowledge and nothing of it was
// stored: a channel has more consumers than the messages name, the node lease
// is lost, or the IDs are older than MaxIDAge. Refresh and insert again with
// new IDs.
var ErrStale = errors.New("durable: stale audience, node lease or message ID")

// ErrPrecondition says that a precondition of a Put does not hold; nothing was
// stored.
var ErrPrecondition = errors.New("durable: precondition of the change does not hold")

// ErrRejected says that the server refuses this one row for what it holds; the
// rest of its batch is not concerned.
var ErrRejected = errors.New("durable: row rejected")

// ErrOutcomeUnknown says that the connection broke around COMMIT and the server
// could not be asked in time: the batch may or may not be stored, whole.
var ErrOutcomeUnknown = errors.New("durable: outcome of the commit is unknown")

// ErrFailed says that the store did not do what it was asked, for a reason of its own:
// it cannot be reached, was too slow, or refused. Unless the error is ErrOutcomeUnknown
// as well, nothing has changed.
var ErrFailed = errors.New("durable: the store failed")

// ErrFull says that a channel has as many consumers as message IDs can address.
var ErrFull = errors.New("durable: channel has the maximum number of consumers")

// ErrConsumerInvalid says that the merged consumer would be one that cannot be
// delivered to: a push consumer without a callback URL.
var ErrConsumerInvalid = errors.New("durable: push consumer without callback URL")

// A DuplicateError names the message that is stored already.
type DuplicateError struct{ ID ident.ID }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v: held by %s", ErrDuplicate, e.ID) }

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// MaxIDAge is how old a message ID may be when its row is inserted, by the
// server's clock. The reconciler relies on it: below its own horizon, which is
// further back, no new row can appear.
const MaxIDAge = time.Second

// A ConsumerType says who starts a delivery.
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

// A Consumer gets one job for each message posted to its channel after it was created.
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
	Policy      string // record of package policy: what the consumer sets itself
	ChangedAt   time.Time
	Version     int64
}

// A Put is what the three resources share when they are created or updated.
// A nil field keeps the stored value; on creation Name defaults to the ID and
// Token to NewToken.
type Put struct {
	ID       string
	Name     *string
	Token    *string
	NewToken string // used on creation when Token is nil

	// Preconditions. The transaction that writes checks them on the row that it
	// replaces, so of writers with the same precondition only one passes.
	Exists          *bool     // nil: none; else whether there must be such a resource
	Revision        time.Time // zero: none; else the ChangedAt that the stored resource must have
	UnmodifiedSince time.Time // zero: none; compared in whole seconds, and only where there is a resource
}

// A ConsumerPut creates or updates a consumer of an existing channel.
type ConsumerPut struct {
	Put
	ChannelID   string
	CallbackURL *string
	Type        *ConsumerType // nil: push on creation
	Protocol    *string
	// Policy makes the new record from the stored one, inside the transaction; nil
	// keeps it. Its error is returned as it is, and nothing is stored.
	Policy func(record string) (string, error)
}

// Changes are the rows written after a version of the catalogue.
type Changes struct {
	Version   int64 // pass it as `after` next time
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

// A Node is a broker as the others see it.
type Node struct {
	No      uint16
	Name    string
	Token   [16]byte
	Expires time.Time
	Alive   bool // by the store's clock
}

// A Message is what a producer published: immutable once stored.
type Message struct {
	ID          ident.ID
	ChannelNo   uint32
	ProducerNo  uint32
	Audience    int    // consumers of the channel when it was stored: positions 0..Audience-1
	Priority    int    // 0..1023, higher first
	Key         string // the producer's own message ID, "" when it gave none
	ContentType string
	Headers     []byte // metadata headers, "name:value\n" each, in the producer's order
	Payload     []byte
}

// A Head is what the reconciler needs of a message.
type Head struct {
	ID       ident.ID
	Audience int
	Priority int
}

// A JobStatus is what the store knows of a job. Without a row it is Waiting:
// queued or in flight, which only the queue can tell.
type JobStatus uint8

// Where rows of several kinds exist, the highest of these counts: a consumer's
// success is never taken back.
const (
	Waiting   JobStatus = iota
	Open                // left the happy path, not over: retry or redrive
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

// An OutcomeKind says how an attempt ended.
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
	Priority   int      // kept in open_jobs, so that the queue can be rebuilt from it
	Attempts   int      // attempts charged, this one included
	AtMs       int64    // Unix ms
	StatusCode int      // HTTP status of the consumer, 0 when there was none
	// Tracked says that the job may have an open_jobs or dead_jobs row, which
	// the outcome then removes. False on the happy path: no statement for it.
	Tracked bool

	// Retry and Dead only:
	NextMs     int64  // Retry: Unix ms of the next attempt
	Error      string // what went wrong, for people; cut to 1 KiB
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
