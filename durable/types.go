package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// ErrNotFound means that the row does not exist.
var ErrNotFound = errors.New("durable: not found")

// ErrDuplicate means that the message is already stored: the channel has a message with the
// same Key, producer, content and terms. The error is a *DuplicateError.
var ErrDuplicate = errors.New("durable: duplicate message ID in channel")

// ErrConflict means that another message of the channel has the Key, from another producer or
// with other content or terms. The message of the call is not stored.
var ErrConflict = errors.New("durable: message ID of another message in channel")

// ErrReused means that another message has the Idempotency-Key.
var ErrReused = errors.New("durable: idempotency key of another message")

// ErrStale means that a batch was built from stale knowledge and nothing of it is stored: a
// channel has another audience or shape than the messages, or was paused or deleted, the
// node lease is lost, a producer was deleted after NodeLease.Known, or the IDs are older than
// MaxIDAge. The caller refreshes its knowledge and inserts again with
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

// ErrSince means that a Put names another Since than that of the consumer, which exists.
var ErrSince = errors.New("durable: the consumer begins at another time")

// ErrConsumerInvalid means that a Put would result in a push consumer without a callback URL.
var ErrConsumerInvalid = errors.New("durable: push consumer without callback URL")

// A DuplicateError contains the ID of the stored message.
type DuplicateError struct{ ID ident.ID }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%v: its message is %s", ErrDuplicate, e.ID)
}

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
	// PublishSecret signs what the producer publishes; empty: nothing is signed.
	PublishSecret string
	Deleted       bool // its ID may belong to another producer
	Former
	Settings string // record of package policy: what it wants to get back
}

// A Channel broadcasts every message to all its consumers.
type Channel struct {
	No       uint32
	ID       string
	Name     string
	Token    string
	Audience int // positions of consumers given away so far, of deleted ones included
	// Shape grows when a consumer is deleted or its policy changes: later messages may reach others.
	Shape     int64
	ChangedAt time.Time
	Version   int64
	Paused    bool   // accepts no messages
	Intake    string // record of package policy: how it takes messages in
	Deleted   bool   // its ID may belong to another channel; Paused is set, too
	Group     string // ID of the group that it carries, "" for none
	// GroupPaused: the group is paused, so the channel accepts no messages, whatever Paused says.
	GroupPaused bool
	Former
}

// Closed reports whether the channel accepts no messages.
func (c *Channel) Closed() bool { return c.Paused || c.GroupPaused }

// A Group is channels that have limits and a pause in common.
type Group struct {
	No          uint32
	ID          string
	Name        string
	MaxChannels int    // 0: any number
	Paused      bool   // its channels accept no messages
	Settings    string // record of package policy
	ChangedAt   time.Time
	Version     int64
	Deleted     bool // its ID may belong to another group
}

// A Consumer gets one job for each message posted to its channel after its creation, and for those
// of the past that Since says.
type Consumer struct {
	No          uint32
	ChannelNo   uint32
	Position    int // 0-based, in order of creation inside the channel, for ever
	ID          string
	Name        string
	Token       string
	CallbackURL string
	Type        ConsumerType
	Protocol    string // "" or "h2": HTTP/2 for deliveries; "auto": on https
	Policy      string // record of package policy: the consumer's own settings
	ChangedAt   time.Time
	Version     int64
	State       ConsumerState
	StateReason string // why the state is not active
	StateMs     int64  // Unix ms of the last change of the state
	// Until is zero until the consumer is deleted. It has no job of a message after it.
	Until ident.ID
	// Since is zero, or the consumer also has a job of each message after it that was stored before
	// the consumer was created. SincePolicy is the record of its policy at that time: the filter for
	// these messages. Both are fixed.
	Since       ident.ID
	SincePolicy string
	// Replay is not nil in the consumer of a replay, see Generation.
	Replay *Replay
	Former
}

// A Put creates or updates a resource; the kinds of resources share it. A nil field keeps
// the stored value. On creation Name defaults to the ID and Token to NewToken.
type Put struct {
	ID       string
	Name     *string
	Token    *string
	NewToken string // used on creation when Token is nil, and by Rotate
	// Rotate makes NewToken the token, and keeps the present one valid for so long. nil: not so.
	Rotate *time.Duration
	// PublishSecret is of a producer only; empty removes it.
	PublishSecret *string
	// Settings is of a producer only; as Intake. Replies makes the consumer of its replies follow them.
	Settings func(record string) (string, error)
	Replies  func(settings string, k Consumer) (Consumer, error)
	// Group is of a channel only: the ID of its group, "" for none. Where the channel has another one, Move may refuse
	// it: its error is returned, and nothing is stored.
	Group *string
	Move  func() error
	// Limits is of a group only: it returns the new record for the stored one, as Intake, and MaxChannels.
	Limits func(record string) (string, int, error)
	// Intake is of a channel only: it returns the new record for the stored one. If it fails, its
	// error is returned unchanged and nothing is stored.
	Intake func(record string) (string, error)

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
	// Since is the Since of a consumer that the Put creates. An existing one must have the same.
	Since *ident.ID
}

// Changes are the rows written after a version of the catalogue.
type Changes struct {
	Version   int64 // argument of the next Changes call
	Producers []Producer
	Channels  []Channel
	Groups    []Group
	Consumers []Consumer
	Replays   []Replay // those that have not ended, and those that ended not long ago
	// Tokens are all API tokens, if one of them has changed: NewTokens.
	Tokens    []APIToken
	NewTokens bool
}

// A Message is a published message. It never changes after it is stored.
type Message struct {
	ID          ident.ID
	ChannelNo   uint32
	ProducerNo  uint32
	Audience    int       // consumers of the channel when it was stored: positions 0..Audience-1
	Shape       int64     // of the channel when Audience, Addressed and LeftOut were decided; for the insert
	Addressed   Positions // the consumers that the producer named, "" for all
	LeftOut     Positions // consumers whose filters refused it, of those that it is addressed to; "" for none
	Priority    int       // 0..1023, higher first
	Key         string    // its identity for repeats, "" if it has none; see ProducerKey and IdempotencyKey
	TTLMs       int64     // time to live of its jobs, 0: none of its own; one of its terms
	ContentType string
	Headers     []byte // ordering key, Content-Encoding, metadata headers in the producer's order, "name:value\n" each
	Payload     []byte
	Occurrence  *Occurrence // of a message of a schedule, for the insert; nil: it is published now
	Replicated  bool        // for the insert: nil only if a second server has the message
}

// Bytes returns about how much memory the message takes.
func (m *Message) Bytes() int { return len(m.Payload) + len(m.Headers) + 256 }

// Kept returns how many bytes count as stored for the producer.
func (m *Message) Kept() int64 { return int64(len(m.Payload) + len(m.Headers)) }

// A Head has the fields of a message that the reconciler needs.
type Head struct {
	ID        ident.ID
	Audience  int
	Priority  int
	TTLMs     int64     // only HeadsOf reads it
	Addressed Positions // as in Message
	LeftOut   Positions
}

// A Latest is the newest message of a channel.
type Latest struct {
	ChannelNo uint32
	ID        ident.ID // zero when the channel has no message
}

// A ConsumerState says whether jobs of a consumer are delivered. Jobs are held in every state
// except StateActive: they stay queued, and nothing else happens to them.
type ConsumerState uint8

// The states of a consumer.
const (
	StateActive ConsumerState = iota
	StatePaused               // by a request
	StateDead                 // too many failures in the window of its policy
	StateGone                 // it answered 410
	// StateProbing is a dead consumer that was revived: one job at a time goes out until an
	// attempt is answered. It is shown as DEAD.
	StateProbing
	StateDeleted // for good; see DeleteConsumer
)

// String returns the name of the state as clients see it.
func (s ConsumerState) String() string {
	switch s {
	case StatePaused:
		return "PAUSED"
	case StateDead, StateProbing:
		return "DEAD"
	case StateGone:
		return "GONE"
	case StateDeleted:
		return "DELETED"
	default:
		return "ACTIVE"
	}
}

// Held reports whether no attempts of the consumer begin. A probe is an exception of its own.
func (k *Consumer) Held() bool { return k.State != StateActive }

// Deleted reports whether the consumer was deleted.
func (k *Consumer) Deleted() bool { return k.State == StateDeleted }

// An Occurrence makes the insert of a message the end of its wait in a schedule. One transaction
// stores the message and moves the schedule on, if the schedule waits for just this message.
type Occurrence struct {
	Of       ident.ID // the schedule
	No       int      // of the message in the schedule
	NextNo   int
	NextMs   int64 // when message NextNo is due; 0: this is the last message
	Reserved bool  // the Key of the message is that of the schedule

	ChangedMs int64 // of the schedule: the message is of that state
}

// ErrNotReplicated means that the message is stored, or was not even tried, and that the server does
// not confirm that a second one has it, as the message demands.
var ErrNotReplicated = errors.New("durable: not confirmed by a second server")
