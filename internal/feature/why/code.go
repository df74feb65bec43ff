package why

import "slices"

// A Code says what keeps a job back, or how it ended.
type Code string

// The codes, the most important first.
const (
	StoreUnavailable   Code = "store_unavailable"
	Gone               Code = "gone"
	Tombstoned         Code = "tombstoned"
	Paused             Code = "paused"
	Probing            Code = "probing"
	RetryAfter         Code = "retry_after"
	QueueRestoring     Code = "queue_restoring"
	NoWorker           Code = "no_worker"
	AdaptiveHeartbeat  Code = "adaptive_heartbeat"
	AdaptiveSlow       Code = "adaptive_slow"
	RateLimited        Code = "rate_limited"
	ConcurrencyFull    Code = "concurrency_full"
	OrderingKeyBlocked Code = "ordering_key_blocked"
	Backoff            Code = "backoff"
	EndpointFailing    Code = "endpoint_failing"
	EndpointSlow       Code = "endpoint_slow"
	BrokerSaturated    Code = "broker_saturated"
	BehindPriority     Code = "behind_priority"
	WorkersBusy        Code = "workers_busy"
	Scheduled          Code = "scheduled"
	Delayed            Code = "delayed"
	AcceptedOnly       Code = "accepted_only"
	Due                Code = "due"
	ChannelPaused      Code = "channel_paused"
	GroupPaused        Code = "group_paused"

	// What is over, or never began.
	Dead          Code = "dead"
	Expired       Code = "expired"
	Filtered      Code = "filtered"
	NotAddressed  Code = "not_addressed"
	ConsumerNewer Code = "consumer_newer"
	Delivered     Code = "delivered"
)

var order = []Code{StoreUnavailable, Gone, Tombstoned, Paused, Probing, RetryAfter, QueueRestoring, NoWorker,
	AdaptiveHeartbeat, AdaptiveSlow, RateLimited, ConcurrencyFull, OrderingKeyBlocked, Backoff, EndpointFailing,
	EndpointSlow, BrokerSaturated, BehindPriority, WorkersBusy, Scheduled, Delayed, AcceptedOnly, Due, ChannelPaused,
	GroupPaused, Dead, Expired, Filtered, NotAddressed, ConsumerNewer, Delivered}

// Codes returns all codes, the most important first.
func Codes() []Code { return slices.Clone(order) }

// Known reports whether there is such a code.
func Known(code string) bool { return slices.Contains(order, Code(code)) }

// rank is the place of a code in the order of importance.
func (c Code) rank() int { return slices.Index(order, c) }

// Over reports whether the code says how a job ended, or that there is none.
func (c Code) Over() bool { return c.rank() >= Dead.rank() }
