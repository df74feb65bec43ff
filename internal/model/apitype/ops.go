package apitype

// A Problem is the answer to every request that fails: application/problem+json of RFC 9457.
type Problem struct {
	Type   string `json:"type"`             // what explains the code: /docs/errors#code of the broker
	Title  string `json:"title"`            // the text of Status
	Status int    `json:"status"`           // of the response
	Detail string `json:"detail,omitempty"` // a sentence for people
	Code   string `json:"code"`             // stable, snake_case: for programs
	// RequestID is the X-Request-ID of the response. The log of the broker contains it.
	RequestID string `json:"request_id,omitempty"`
}

// A Root is the answer to / for programs.
type Root struct {
	Name    string    `json:"Name"` // always "Penstock"
	About   string    `json:"About"`
	Version string    `json:"Version"`
	Links   RootLinks `json:"Links"`
}

// RootLinks are where to go from /. Those of the broker are paths.
type RootLinks struct {
	Documentation string `json:"Documentation"` // a URL
	Channels      string `json:"Channels"`
	Producers     string `json:"Producers"`
	Ready         string `json:"Ready"`
	Live          string `json:"Live"`
	Version       string `json:"Version"`
	Metrics       string `json:"Metrics"`
}

// A Health is the answer to /livez and /readyz.
type Health struct {
	Status string `json:"Status"`          // "alive" of /livez, "ready" of /readyz
	Store  string `json:"Store,omitempty"` // of /readyz: "ok"
	Queue  string `json:"Queue,omitempty"` // of /readyz: "ok" or "unreachable"
	// Warning is what an operator must know although the broker is ready.
	Warning string `json:"Warning,omitempty"`
}

// A Version is the answer to /version.
type Version struct {
	Version string `json:"Version"`
	Commit  string `json:"Commit"`
	Go      string `json:"Go"` // version of the Go toolchain
}

// A JobStatus is the answer to /job-status, by the IDs of channel and consumer: of each consumer that has jobs.
type JobStatus map[string]map[string][]StateCount

// A StateCount counts the jobs of a consumer in a state.
type StateCount struct {
	Status int `json:"status"` // 1001 queued, 1002 in flight, 1004 dead; delivered ones are not counted
	Count  int `json:"count"`
	// Oldest is when the message of the oldest one was stored, of queued jobs.
	Oldest *Time `json:"oldestItemTimestamp,omitempty"`
}

// A DLQStatus is the answer to /dlq-status.
type DLQStatus struct {
	Consumers []DeadCount `json:"consumers"` // that have dead letters, by the IDs of channel and consumer
}

// A DeadCount counts the dead letters of a consumer.
type DeadCount struct {
	ChannelID    string `json:"channelId"`
	ChannelName  string `json:"channelName"`
	ConsumerID   string `json:"consumerId"`
	ConsumerName string `json:"consumerName"`
	DeadCount    int    `json:"deadCount"`
}

// A Status is the answer to /_status, for health checks of the older implementation.
type Status struct {
	AppStatus int `json:"AppStatus"` // always 3: initialised
}
