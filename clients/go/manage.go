package penstock

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// A Manager reads and changes the resources of a broker. It needs open management, or the admin token.
type Manager struct{ c *Client }

// Manage returns the manager of the broker.
func (c *Client) Manage() *Manager { return &Manager{c} }

// Fields are those of a resource, by the names of docs/fields.md, such as maxRetries. An absent field
// keeps its value, an empty one goes back to the default.
type Fields map[string]string

// A Resource is a producer, channel or consumer. Members that it has no field for are in More.
type Resource struct {
	ID, Name, Token string
	Type            string // of a consumer: push or pull
	State           string // ACTIVE, PAUSED, DEAD or GONE
	StateReason     string
	CallbackURL     string
	Policy          map[string]string // of a consumer: the values in force
	// of a consumer; nil while the broker cannot count them
	Queued, InFlight, DeadLetters *int
	OldestQueuedAt                *time.Time
	HeldBy                        string
	ETag                          string                     `json:"-"` // for IfMatch
	More                          map[string]json.RawMessage `json:"-"` // all members of the answer
}

// Put creates or changes a producer, channel or consumer at its path, see ProducerPath, ChannelPath and
// ConsumerPath. created: there was none.
func (m *Manager) Put(ctx context.Context, path string, f Fields) (r Resource, created bool, err error) {
	form := url.Values{}
	for name, value := range f {
		form.Set(name, value)
	}
	a, err := m.do(ctx, call{method: http.MethodPut, path: path, body: []byte(form.Encode()),
		header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, &r)
	if err != nil {
		return r, false, err
	}
	r.complete(a)
	return r, a.status == http.StatusCreated, nil
}

// Get reads a producer, channel or consumer.
func (m *Manager) Get(ctx context.Context, path string) (r Resource, err error) {
	a, err := m.do(ctx, call{method: http.MethodGet, path: path}, &r)
	if err == nil {
		r.complete(a)
	}
	return r, err
}

func (r *Resource) complete(a *answer) {
	r.ETag = a.header.Get("ETag")
	_ = json.Unmarshal(a.body, &r.More)
}

// Delete removes a producer, a consumer or an empty channel, where BROKER_ALLOW_DELETE is set.
func (m *Manager) Delete(ctx context.Context, path string) error {
	_, err := m.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return err
}

// ProducerPath, ChannelPath and ConsumerPath are the paths of resources.
func ProducerPath(producer string) string { return producerPath(producer) }

// ChannelPath is the path of a channel.
func ChannelPath(channel string) string { return channelPath(channel) }

// ConsumerPath is the path of a consumer.
func ConsumerPath(channel, consumer string) string { return consumerPath(channel, consumer) }

// Pause holds the jobs of a consumer, or lets a channel accept no messages.
func (m *Manager) Pause(ctx context.Context, path string) error {
	return m.Post(ctx, path+"/pause", nil, nil)
}

// Resume ends a pause.
func (m *Manager) Resume(ctx context.Context, path string) error {
	return m.Post(ctx, path+"/resume", nil, nil)
}

// Revive ends the hold of a dead or gone consumer.
func (m *Manager) Revive(ctx context.Context, path string) error {
	return m.Post(ctx, path+"/revive", nil, nil)
}

// A Why says what keeps jobs back.
type Why struct {
	Summary string
	Reasons []Reason
	At      time.Time
}

// A Reason is one thing that keeps jobs back.
type Reason struct {
	Code, ConsumerID, By, Detail, Action string
	Since, Until                         *time.Time
	Jobs                                 int
	Approximate                          bool
}

// Why says what keeps the jobs of a consumer, a message or a job back. path is theirs.
func (m *Manager) Why(ctx context.Context, path string) (why Why, err error) {
	err = m.Read(ctx, path+"/why", nil, &why)
	return why, err
}

// A ListedJob is a job as lists show it.
type ListedJob struct {
	ID, Status, Reason, ReasonCode, Detail string
	Worker, WorkerVersion, Fingerprint     string
	MessageURL, ConsumerURL, JobURL        string
	Attempts, StatusCode                   int
	LeasesLost, GivenBack                  int
	StatusChangedAt                        time.Time
	NextAttemptAt, HeldUntil, LeaseUntil   *time.Time
}

// Jobs lists up to limit jobs of a consumer with a status (QUEUED, DELAYED, INFLIGHT, DEAD; "": all that are
// not over), the oldest message first.
func (m *Manager) Jobs(ctx context.Context, channel, consumer, status string, limit int) ([]ListedJob, error) {
	query := url.Values{}
	if status != "" {
		query.Set("status", status)
	}
	return m.list(ctx, consumerPath(channel, consumer)+"/jobs", query, limit)
}

// DeadLetters lists up to limit dead letters of a consumer. query has the parameters fingerprint, reason, from,
// to and order.
func (m *Manager) DeadLetters(ctx context.Context, channel, consumer string, query url.Values, limit int) ([]ListedJob,
	error) {
	return m.list(ctx, consumerPath(channel, consumer)+"/dlq", query, limit)
}

// list follows the pages of a list of jobs.
func (m *Manager) list(ctx context.Context, path string, query url.Values, limit int) (all []ListedJob, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = m.Each(ctx, path, query, limit, func(element json.RawMessage) error {
		var j ListedJob
		err := json.Unmarshal(element, &j)
		all = append(all, j)
		return err
	})
	return all, err
}

// A Redrive opens dead letters again. What is zero is not sent: none means all.
type Redrive struct {
	Fingerprint, Reason, From, To string   `json:",omitempty"`
	Jobs                          []string `json:",omitempty"`
	Limit                         int      `json:",omitempty"`
	Rate                          string   `json:",omitempty"` // 100/1s
	Target                        string   `json:",omitempty"` // another consumer of the channel
	Canary                        bool     `json:",omitempty"`
	DryRun                        bool     `json:",omitempty"`
}

// A Redriving is a redrive as the broker shows it. Of a dry run it has Matched only.
type Redriving struct {
	ID, State, Stage, Reason           string
	Matched, Redriven, Delivered, Dead int64
	Approximate                        bool
}

// Redrive begins a redrive, or counts what it would open.
func (m *Manager) Redrive(ctx context.Context, channel, consumer string, q Redrive) (r Redriving, err error) {
	err = m.Post(ctx, consumerPath(channel, consumer)+"/dlq/redrive", q, &r)
	return r, err
}

// Read gets JSON from any route.
func (m *Manager) Read(ctx context.Context, path string, query url.Values, to any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	_, err := m.do(ctx, call{method: http.MethodGet, path: path}, to)
	return err
}

// Post sends JSON to any route, nil for no body, and reads the answer into to, unless that is nil. It is sent
// once: a request of which the outcome is unknown is the caller's to repeat.
func (m *Manager) Post(ctx context.Context, path string, body, to any) error {
	q := call{method: http.MethodPost, path: path, wait: 25 * time.Second}
	if body != nil {
		var err error
		if q.body, err = plainJSON(body); err != nil {
			return err
		}
		q.header = http.Header{"Content-Type": {"application/json"}}
	}
	_, err := m.do(ctx, q, to)
	return err
}

// Call sends any request, once, with the admin token if there is one. An answer other than 2xx is an *Error.
func (m *Manager) Call(ctx context.Context, method, path string, header http.Header, body []byte) (status int,
	answered http.Header, text []byte, err error) {
	h := http.Header{}
	maps.Copy(h, header)
	a, err := m.c.managed(ctx, call{method: method, path: path, header: h, body: body}, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	return a.status, a.header, a.body, nil
}

// do sends a management request. Those that may be repeated are, where there is no answer.
func (m *Manager) do(ctx context.Context, q call, to any) (a *answer, err error) {
	tries := m.c.o.Tries
	if q.method == http.MethodPost || q.method == http.MethodDelete {
		tries = 1
	}
	err = again(ctx, tries, func() error {
		a, err = m.c.managed(ctx, q, to)
		return err
	})
	return a, err
}
