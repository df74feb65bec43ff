package apitype

import "time"

// FailSafe is the User-Agent of the fail-safe of a broker where it calls re-trigger. It is no person, so
// it ends no hold.
const FailSafe = "Penstock-fail-safe"

// A Producer is the answer to PUT and GET of a producer.
type Producer struct {
	ID    string `json:"ID"`
	Name  string `json:"Name"`
	Token string `json:"Token"`
	// ChangedAt is the time of the last change, in whole seconds. It equals Last-Modified.
	ChangedAt time.Time `json:"ChangedAt"`
	// Signed: the producer has a publish secret, and its publishes need X-Broker-Signature.
	Signed bool `json:"Signed,omitempty"`
	// What the producer wants to get back; package policy has the rules.
	// StatusEvents is what the producer hears of its messages; absent: off.
	StatusEvents  string `json:"StatusEvents,omitempty"`  // "all", or some of "delivered,failed,dead"
	ReplyUrl      string `json:"ReplyUrl,omitempty"`      // responses of consumers with responses=callback go to it
	SigningSecret string `json:"SigningSecret,omitempty"` // masked, except in the answer to the PUT that sets it
	// What the producer may store: numbers, "0" for no bound; absent where neither the producer nor the
	// installation has one.
	MaxStoredBytes string `json:"MaxStoredBytes,omitempty"` // bytes of payloads and metadata headers
	MaxScheduled   string `json:"MaxScheduled,omitempty"`   // scheduled messages that wait
	PublishRate    string `json:"PublishRate,omitempty"`    // most messages in a window: "100/1s"; absent: any number
	// The ReplyUrl asked for no replies until then (Retry-After). In the answer to GET only.
	HeldUntil *Time  `json:"HeldUntil,omitempty"`
	HeldBy    string `json:"HeldBy,omitempty"` // the answer that asked for it
}

// A Channel is the answer to PUT and GET of a channel.
type Channel struct {
	ID           string    `json:"ID"`
	Name         string    `json:"Name"`
	Token        string    `json:"Token"`
	ChangedAt    time.Time `json:"ChangedAt"` // as of a Producer
	ConsumersURL string    `json:"ConsumersURL"`
	MessagesURL  string    `json:"MessagesURL"`
	BroadcastURL string    `json:"BroadcastURL"`
	State        string    `json:"State"`      // "ACTIVE" or "PAUSED": it accepts no messages
	Duplicates   string    `json:"Duplicates"` // "refuse", or "acknowledge": a repeat is 200
	Identity     string    `json:"Identity"`   // among whose messages a message ID is unique: "channel" or "producer"
	// Ack is what the success of a publish promises: "durable", "journal" or "replicated".
	Ack           string `json:"Ack"`
	LatencyBudget string `json:"LatencyBudget"` // of "journal": how long a publish waits for the store
	ExpectEvery   string `json:"ExpectEvery"`   // longest time without a message that is no alarm; "0s": any
	PublishRate   string `json:"PublishRate"`   // most messages in a window: "100/1s", or "none"
	Group         string `json:"Group"`         // ID of the group that it carries; "": none
	// Store is the name of the store that has it, of BROKER_MYSQL_DSNS. Absent: that of BROKER_MYSQL_DSN.
	Store string `json:"Store,omitempty"`
	// How long its messages are kept; absent: as the installation says.
	Retention         string `json:"Retention,omitempty"`         // age of a message that is over: "720h"; "0s": for ever
	RetentionMessages string `json:"RetentionMessages,omitempty"` // number of the newest ones that are kept; "0": any
	RetentionBytes    string `json:"RetentionBytes,omitempty"`    // their size, bytes; "0": any
	DeadRetention     string `json:"DeadRetention,omitempty"`     // of a dead letter; "0s": for ever
	AttemptRetention  string `json:"AttemptRetention,omitempty"`  // of a failed attempt; "0s": as its message
	// GroupState is that of the group: "ACTIVE" or "PAUSED", where the channel accepts no messages. Absent: it
	// carries none.
	GroupState string `json:"GroupState,omitempty"`
}

// A Group is the answer to PUT and GET of a group of channels.
type Group struct {
	ID          string    `json:"ID"`
	Name        string    `json:"Name"`
	ChangedAt   time.Time `json:"ChangedAt"`   // as of a Producer
	State       string    `json:"State"`       // "ACTIVE" or "PAUSED": its channels accept no messages
	MaxChannels int       `json:"MaxChannels"` // most channels that carry it; 0: any number
	PublishRate string    `json:"PublishRate"` // of its channels together, as of a Channel
	Channels    *int      `json:"Channels"`    // that carry it
	ChannelsURL string    `json:"ChannelsURL"`
}

// A Consumer is the answer to PUT and GET of a consumer.
type Consumer struct {
	ID                 string    `json:"ID"`
	Name               string    `json:"Name"`
	Token              string    `json:"Token"`
	ChangedAt          time.Time `json:"ChangedAt"`   // as of a Producer
	CallbackURL        string    `json:"CallbackURL"` // "": none, which only a pull consumer may have
	DeadLetterQueueURL string    `json:"DeadLetterQueueURL"`
	Type               string    `json:"Type"`               // "push" or "pull"
	Protocol           string    `json:"Protocol,omitempty"` // "h2", or "auto": on https; absent: HTTP/1.1
	Policy             Policy    `json:"Policy"`             // effective values
	Inherited          []string  `json:"Inherited"`          // members of Policy that the consumer does not set itself
	// Since is there if the consumer also gets older messages: those from this time on. RemovedBefore
	// is in the answer that creates it only: retention may have removed older ones than that.
	Since         *Time `json:"Since,omitempty"`
	RemovedBefore *Time `json:"RemovedBefore,omitempty"`
	// How the consumer is doing. The counts are absent while Redis or the store cannot be asked.
	State          string `json:"State"`       // "ACTIVE", "PAUSED", "DEAD" or "GONE"
	StateReason    string `json:"StateReason"` // "" of an active consumer
	StateChangedAt Time   `json:"StateChangedAt"`
	// HeldBy is what holds all jobs of the consumer, a code of its why; absent: nothing does. HeldUntil is
	// when that ends by itself.
	HeldUntil *Time  `json:"HeldUntil,omitempty"`
	HeldBy    string `json:"HeldBy,omitempty"`
	// What the last attempts have shown, of all brokers, up to a second late. Absent: there was none.
	LastAttemptAt *Time  `json:"LastAttemptAt,omitempty"` // end of the last attempt
	LastSuccessAt *Time  `json:"LastSuccessAt,omitempty"` // of the last one that delivered
	LastStatus    int    `json:"LastStatus,omitempty"`    // answer to the last attempt
	LastError     string `json:"LastError,omitempty"`     // why the last attempt failed
	LastClaimAt   *Time  `json:"LastClaimAt,omitempty"`   // last claim, list or move of a worker

	Rate           string `json:"Rate"`                     // "NORMAL", "SLOW" or "HEARTBEAT"
	CurrentRate    string `json:"CurrentRate,omitempty"`    // of an adaptive consumer that is slowed down: "12/1s"
	Queued         *int   `json:"Queued,omitempty"`         // jobs that wait, without those in flight
	InFlight       *int   `json:"InFlight,omitempty"`       // jobs under way
	DeadLetters    *int   `json:"DeadLetters,omitempty"`    // dead jobs
	OldestQueuedAt *Time  `json:"OldestQueuedAt,omitempty"` // absent: no job is queued
}

// A Policy is the delivery policy of a consumer, as texts that the form of a consumer accepts.
// Package policy has the rules. The names are those of its fields with a capital first letter;
// the members are in alphabetical order.
type Policy struct {
	Adaptive string `json:"Adaptive"` // "true" or "false"
	// "true" or "false": some answers only accept, and the result comes later
	Async         string `json:"Async"`
	AsyncStatus   string `json:"AsyncStatus"`   // of answers that accept: "202"
	Authorization string `json:"Authorization"` // its kind; the rest is masked
	Backoff       string `json:"Backoff"`       // waits before the retries: "5s,30s,1m", or "constant:30s"
	Body          string `json:"Body"`          // of mails, with places {{...}}
	Collect       string `json:"Collect"`       // jobs of a mail, and its wait: "20/5s"; "none"
	Concurrency   string `json:"Concurrency"`   // most attempts in flight, or "none"
	// "keep", "redrive", "forward:CHANNEL" or "expire:DURATION"
	Dlq              string `json:"Dlq"`
	Filter           string `json:"Filter"`           // a CEL expression; "": every message
	Headers          string `json:"Headers"`          // lines "Name: value"
	Identity         string `json:"Identity"`         // "full" or "minimal": what deliveries tell of the broker
	MaxAge           string `json:"MaxAge"`           // objective for the oldest waiting job; "0s": none
	MaxLeasesLost    string `json:"MaxLeasesLost"`    // leases of a job that may end without a word: "5"
	MaxRetries       string `json:"MaxRetries"`       // retries after the first attempt: "5"
	OnBlocked        string `json:"OnBlocked"`        // "block", "skip" or "dead-letter-key"
	Ordered          string `json:"Ordered"`          // "true" or "false"
	RateLimit        string `json:"RateLimit"`        // most attempts in a window: "100/1s", or "none"
	ResponseHeaders  string `json:"ResponseHeaders"`  // that are kept: "content-type,x-*"
	ResponseMaxBytes string `json:"ResponseMaxBytes"` // of a response that are kept
	// age at which a response is dropped; "0s": with its message
	ResponseTTL           string `json:"ResponseTTL"`
	Responses             string `json:"Responses"`             // "off", "store" or "callback"
	ResultDeadline        string `json:"ResultDeadline"`        // from the acceptance to the result: "24h"
	ResultUrl             string `json:"ResultUrl"`             // with {messageID}; "": none
	RetryOn               string `json:"RetryOn"`               // "all", or codes and classes: "5xx,404"
	RetryShare            string `json:"RetryShare"`            // percent for attempts after the first
	SigningOverlap        string `json:"SigningOverlap"`        // a Go duration
	SigningSecret         string `json:"SigningSecret"`         // masked, except in the answer to the PUT that sets it
	SigningSecretPrevious string `json:"SigningSecretPrevious"` // masked
	SqsDelay              string `json:"SqsDelay"`              // of messages of SQS clients: "5s"
	SqsWait               string `json:"SqsWait"`               // of receives of SQS clients: "20s"
	StatusUrl             string `json:"StatusUrl"`             // with {messageID}; "": none
	Subject               string `json:"Subject"`               // of mails, with places {{...}}
	Timeout               string `json:"Timeout"`               // of one push attempt, as a Go duration: "30s"
	TombstoneAfter        string `json:"TombstoneAfter"`        // "0": never
	TombstoneWindow       string `json:"TombstoneWindow"`       // a Go duration
	Ttl                   string `json:"Ttl"`                   // age at which a job is a dead letter; "0s": never
}

// A List is a page of producers, channels, consumers or messages.
type List struct {
	Result []string  `json:"Result"` // links to the resources, never null
	Pages  Pages     `json:"Pages"`
	Links  *struct{} `json:"Links"` // always null: clients of the older implementation decode it
}

// Pages links a page to the next one.
type Pages struct {
	Next string `json:"next,omitempty"` // absent: this is the last page
}

// A ProducerForm is the form of a PUT of a producer. An absent field keeps its value.
type ProducerForm struct {
	// UTF-8 without control characters; empty counts as absent. A new producer has its ID
	Name *string `form:"name"`
	// visible ASCII characters; empty counts as absent. A new producer gets a random one
	Token *string `form:"token"`
	// 16 to 255 visible ASCII characters; empty: publishes are not signed. Never shown
	PublishSecret *string `form:"publishSecret"`
	StatusEvents  *string `form:"statusEvents"` // see Producer; empty: off
	ReplyUrl      *string `form:"replyUrl"`     // this and the following: see Producer; empty: none
	SigningSecret *string `form:"signingSecret"`
	// Whole numbers, 0 for no bound; empty: those of the installation.
	MaxStoredBytes *string `form:"maxStoredBytes"`
	MaxScheduled   *string `form:"maxScheduled"`
	PublishRate    *string `form:"publishRate"` // "100/1s"; empty: no limit
}

// A ChannelForm is the form of a PUT of a channel.
type ChannelForm struct {
	Name          *string `form:"name"`          // as of a ProducerForm
	Token         *string `form:"token"`         // as of a ProducerForm
	Duplicates    *string `form:"duplicates"`    // "refuse" or "acknowledge"; empty: refuse
	Identity      *string `form:"identity"`      // "channel" or "producer"; empty: channel
	Ack           *string `form:"ack"`           // "durable", "journal" or "replicated"; empty: durable
	LatencyBudget *string `form:"latencyBudget"` // a duration; empty: 65ms
	ExpectEvery   *string `form:"expectEvery"`   // a duration; empty: silence is no alarm
	PublishRate   *string `form:"publishRate"`   // "100/1s"; empty: no limit
	Group         *string `form:"group"`         // ID of a group that exists; empty: none
	Store         *string `form:"store"`         // of BROKER_MYSQL_DSNS; fixed at the creation; empty: the first one
	// Of the following, empty: as the installation says.
	Retention         *string `form:"retention"`         // a duration, or 0: for ever
	RetentionMessages *string `form:"retentionMessages"` // a whole number, or 0: any
	RetentionBytes    *string `form:"retentionBytes"`    // bytes, or a size like 10GiB, or 0: any
	DeadRetention     *string `form:"deadRetention"`     // a duration, or 0: for ever
	AttemptRetention  *string `form:"attemptRetention"`  // a duration, or 0: as long as the message
}

// A GroupForm is the form of a PUT of a group. An absent field keeps its value.
type GroupForm struct {
	Name        *string `form:"name"`        // as of a ProducerForm
	MaxChannels *string `form:"maxChannels"` // 0 to 1000000; empty or 0: any number
	PublishRate *string `form:"publishRate"` // "100/1s"; empty: no limit
}

// A ConsumerForm is the form of a PUT of a consumer. An absent field keeps its value. An empty
// field of the policy returns to the default of the installation.
type ConsumerForm struct {
	Name  *string `form:"name"`  // as of a ProducerForm
	Token *string `form:"token"` // as of a ProducerForm
	// absolute http or https URL, mailto:ADDRESSES, nats://HOST/SUBJECT; empty: none, which only a pull consumer may have
	CallbackURL *string `form:"callbackUrl"`
	Type        *string `form:"type"`     // "push" or "pull"; empty: push
	Protocol    *string `form:"protocol"` // "h2", or "auto": on https; empty: HTTP/1.1
	// RFC 3339 time: with the PUT that creates only; empty: no messages of the past
	Since                 *string `form:"since"`
	Timeout               *string `form:"timeout"` // this and the following: see Policy
	Backoff               *string `form:"backoff"`
	RetryOn               *string `form:"retryOn"`
	Ttl                   *string `form:"ttl"`
	RateLimit             *string `form:"rateLimit"`
	Concurrency           *string `form:"concurrency"`
	RetryShare            *string `form:"retryShare"`
	Ordered               *string `form:"ordered"`
	OnBlocked             *string `form:"onBlocked"`
	Adaptive              *string `form:"adaptive"`
	TombstoneAfter        *string `form:"tombstoneAfter"`
	TombstoneWindow       *string `form:"tombstoneWindow"`
	StatusUrl             *string `form:"statusUrl"`
	Filter                *string `form:"filter"`
	SigningSecret         *string `form:"signingSecret"`
	SigningSecretPrevious *string `form:"signingSecretPrevious"`
	SigningOverlap        *string `form:"signingOverlap"`
	Headers               *string `form:"headers"`
	Authorization         *string `form:"authorization"`
	Identity              *string `form:"identity"`
	Dlq                   *string `form:"dlq"`
	MaxAge                *string `form:"maxAge"`
	MaxLeasesLost         *string `form:"maxLeasesLost"`
	MaxRetries            *string `form:"maxRetries"`
	Responses             *string `form:"responses"`
	ResponseMaxBytes      *string `form:"responseMaxBytes"`
	ResponseHeaders       *string `form:"responseHeaders"`
	ResponseTTL           *string `form:"responseTTL"`
	Async                 *string `form:"async"`
	AsyncStatus           *string `form:"asyncStatus"`
	ResultUrl             *string `form:"resultUrl"`
	ResultDeadline        *string `form:"resultDeadline"`
	SqsDelay              *string `form:"sqsDelay"`
	SqsWait               *string `form:"sqsWait"`
	Subject               *string `form:"subject"`
	Body                  *string `form:"body"`
	Collect               *string `form:"collect"`
}

// A LoginForm is the form that begins a session of the dashboard.
type LoginForm struct {
	Token string `form:"token"` // the admin token
	Next  string `form:"next"`  // page of the dashboard to go to; anything else: the first one
}

// An ActionForm is the form with which a page of the dashboard asks whether an action is to be done.
type ActionForm struct {
	Bound string `form:"bound"` // the number or state for which it was asked
	Seal  string `form:"seal"`  // the signature of the broker over that
}

// A PublishForm is the form with which the dashboard sends a message.
type PublishForm struct {
	Channel  string `form:"channel"`
	Producer string `form:"producer"`
	Token    string `form:"token"`    // of the producer
	Type     string `form:"type"`     // of the payload
	Priority string `form:"priority"` // 0 to 1023, higher first
	ID       string `form:"id"`       // of the message; "": the broker makes one
	Payload  string `form:"payload"`  // lines end with LF
}

// A RedriveForm is the form of a redrive of all dead letters of a consumer.
type RedriveForm struct {
	Requeue string `form:"requeue"` // the consumer's token
}
