package main

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/bench"
)

// A subject is a broker under one configuration.
type subject struct {
	name  string // of the -subjects flag
	title string // in tables
	// flushed tells whether a message is on disk when it is acknowledged.
	flushed string
	// programs are the flags of the programs that must be installed.
	programs []string
	// open starts a peer. It is nil for Penstock, which `bench run` measures.
	open func(ctx context.Context, s *site, o *options) (server, error)
}

// subjects are all that can be measured, in the order of the tables.
var subjects = []*subject{
	{"penstock", "Penstock", "yes, group commit", []string{"mariadbd", "mariadb-install-db", "redis-server"}, nil},
	{"rabbitmq-classic", "RabbitMQ, durable classic queue", "yes, in groups, unless its consumer was quicker", []string{"rabbitmq-server", "epmd"}, openRabbitMQ("classic")},
	{"rabbitmq-quorum", "RabbitMQ, quorum queue (one node)", "yes, in groups", []string{"rabbitmq-server", "epmd"}, openRabbitMQ("quorum")},
	{"nats-always", "NATS JetStream, `sync_interval: always`", "yes, each message", []string{"nats-server"}, openJetStream(true)},
	{"nats-default", "NATS JetStream, default", "**no**: every 2 minutes", []string{"nats-server"}, openJetStream(false)},
	{"asynq-always", "asynq, Redis `appendfsync always`", "yes, in groups", []string{"redis-server"}, openAsynq("always")},
	{"asynq-everysec", "asynq, Redis `appendfsync everysec`", "**no**: every second", []string{"redis-server"}, openAsynq("everysec")},
}

// baseline is the subject that the others are compared with.
const baseline = "penstock"

func subjectNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

func subjectNamed(name string) (*subject, error) {
	for _, s := range subjects {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("-subjects: no %q among %v", name, subjectNames())
}

// A server is a running peer with one empty durable queue.
type server interface {
	// Version names server and client.
	Version() string
	// Processes returns the processes whose CPU time is the cost of the peer.
	Processes() []bench.Process
	// Publisher opens a new connection.
	Publisher(ctx context.Context) (publisher, error)
	// Consume starts the one consumer. receive is called for each delivery
	// before it is acknowledged, maybe from several goroutines; the body is
	// valid during the call.
	Consume(receive func(body []byte)) (consumer, error)
	// Left returns the number of messages that the queue still has, including those given to a
	// consumer without an acknowledgement. It is called after the consumer is closed.
	Left(ctx context.Context) (int64, error)
	// Close stops the processes. It returns an error if one had ended before.
	Close() error
}

// A publisher sends one message at a time.
type publisher interface {
	// Publish returns nil once the server has acknowledged the message. Any
	// error leaves open whether it is stored. The body may be reused afterwards.
	Publish(ctx context.Context, body []byte) error
	Close() error
}

// A consumer runs until it is closed. Close waits for the deliveries under way.
type consumer interface{ Close() error }

// A sample is one run of a subject.
type sample struct {
	Subject           string
	Publishers, Round int
	Version           string
	Durability        []string      `json:",omitempty"`
	Result            *bench.Result `json:",omitempty"`
	// Held is the server's count at the end, -1 if it was not read.
	Held    int64
	Failure string `json:",omitempty"` // why there is no result, or why it proves nothing
}

// measure runs one step. It does not return an error: the next step may work.
func measure(ctx context.Context, s *site, o *options, st step) *sample {
	x := &sample{Subject: st.subject.name, Publishers: st.publishers, Round: st.round, Held: -1}
	// Dirty pages of the previous run must not count as a cost of this one.
	s.flushPages()
	if err := x.measure(ctx, s, o, st); err != nil {
		x.Failure = err.Error()
	}
	return x
}

func (x *sample) measure(ctx context.Context, s *site, o *options, st step) (err error) {
	if st.subject.open == nil {
		return measurePenstock(ctx, s, o, x)
	}
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	srv, err := st.subject.open(starting, s, o)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := srv.Close(); err == nil {
			err = cerr
		}
	}()
	x.Version = srv.Version()
	l, err := newLoad(o, st.publishers, srv)
	if err != nil {
		return err
	}
	x.Result, x.Held, err = l.run(ctx)
	return err
}

// startWithin bounds the start of the servers of a subject.
const startWithin = 90 * time.Second
