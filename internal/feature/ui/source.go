package ui

import (
	"context"
	"net/url"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Source is what pages show: the API. Its errors are those that the routes of the API answer.
type Source interface {
	// Overview says how the whole broker is doing, and was over a span.
	Overview(ctx context.Context, over Span) Overview
	// Troubled returns how many consumers need a person, as of the last sample.
	Troubled() int
	// Consumer says how a consumer is doing, and was over a span.
	Consumer(ctx context.Context, channel, consumer string, over Span) (Consumer, error)
	// Message and Job say what became of them; first begins a page of the timeline. responses asks for those of the
	// consumers, too.
	Message(ctx context.Context, channel, message, first string, responses bool) (Message, error)
	Job(ctx context.Context, channel, consumer, job, first string) (Message, error)
	// Channels lists channels from an ID on, those of a group or of any (""), and Channel says how one is doing.
	Channels(ctx context.Context, group, first string) (list []Channel, next string)
	Channel(ctx context.Context, id string, over Span) (Channel, error)
	// Groups lists groups of channels from an ID on, and Group returns one.
	Groups(first string) (list []Group, next string)
	Group(id string) (Group, error)
	// Scheduled, Bulks and Replays list those of a channel, or of a consumer, from the entry first on.
	Scheduled(ctx context.Context, channel, first, place string) (list []Scheduled, next, at string, err error)
	Bulks(ctx context.Context, channel, first string) (list []apitype.Bulk, next string, err error)
	Replays(ctx context.Context, channel, consumer, first string) (list []Replay, next string, err error)
	ReplaysUnderWay() []Replay
	Brokers() ([]Broker, About)
	// Settings are those of the broker that makes the page, without secrets.
	Settings() []apitype.Setting
	// Search looks for an ID or a name.
	Search(ctx context.Context, q string) Found
	// Consumers returns the channel and ID, as Consumer and ID, of some consumers of a channel ("": of any) with an
	// ID ("": any).
	Consumers(channel, id string) []MessageJob
	// Jobs lists jobs of a consumer with a state as the API writes it, the newest message first.
	Jobs(ctx context.Context, channel, consumer, status, first string, limit int) (Jobs, error)
	// Get reads the answer to a GET of a route into a value.
	Get(ctx context.Context, route string, ids map[string]string, query url.Values, into any) error
	// TokenOf returns the token of the consumer with an ID and a number; false: there is none.
	TokenOf(channel, consumer string, no uint32) (token string, ok bool)
	// Manage makes memory of the page count as that of management.
	Manage()
	// Grant returns what an API token opens, and GrantByID the same of one that was asked for before. Act makes the
	// requests of Do be checked by a grant.
	Grant(ctx context.Context, token []byte) (Grant, error)
	GrantByID(id string) (Grant, bool)
	Act(id string)
	// Load says what a consumer has to do now, not as of the last sample.
	Load(ctx context.Context, channel, consumer string) (Load, error)
	// Reveal writes into the audit log that a reader sees the payload of a message; who is "" for whoever asked for the
	// page. After an error it must not be shown.
	Reveal(ctx context.Context, who, channel, message string) error
	// Do sends a request to a route, as whoever asked for the page may. A refusal is an error.
	Do(r Request) (Answer, error)
}

// A Load is what a consumer has to do.
type Load struct {
	State, Type                      string
	Counted                          bool // the numbers are known
	Waiting, Delayed, InFlight, Dead int  // Delayed are among Waiting
}

// A Request is one to a route of the API.
type Request struct {
	Method, Path string // the path with its query
	Who          string // who asks, for the audit log; "": whoever asked for the page
	Headers      map[string]string
	Body         []byte
}

// An Answer is what a route answered.
type Answer struct {
	Status   int
	Location string
	Body     []byte
}

// An Overview is how the whole broker is doing.
type Overview struct {
	Counted             bool // the jobs of the consumers are counted; else there is no sample yet
	CountedAt           time.Time
	Channels, Consumers int
	Waiting, Dead       int
	InFlight            int

	// The oldest job that waits, and whose it is; the zero time: none waits.
	Oldest                        time.Time
	OldestChannel, OldestConsumer string

	// Answers to publishes a second, of all brokers that say so: 201, 202, 503.
	Answers [3]float64

	Troubled int                      // consumers that need a person
	Trouble  []apitype.ListedConsumer // the worst of them

	History    *apitype.HistoryRange // of the span; nil: it cannot be read
	StoreError string                // what is wrong with the store; "": nothing
	QueueError string                // the same of Redis
	Warning    string                // what /readyz tells an operator
}

// A Consumer is how a consumer is doing.
type Consumer struct {
	apitype.ListedConsumer
	Why     apitype.Why
	Workers []apitype.Worker      // of a pull consumer
	Missing []string              // what cannot be read now
	History []apitype.HistorySlot // of the span
}
