package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStream is one server with one stream in files and one durable consumer.
// Publishers wait for the acknowledgement of each message, the consumer
// acknowledges each delivery. The stream keeps its messages, as Penstock does.
type jetStream struct {
	*group
	url      string
	prefetch int
	version  string
	control  *nats.Conn
	queue    jetstream.Consumer
}

// openJetStream starts a server. always makes it flush each message before the
// acknowledgement; its default is every two minutes.
func openJetStream(always bool) func(context.Context, *site, *options) (server, error) {
	return func(ctx context.Context, s *site, o *options) (_ server, err error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		g, err := newGroup(s)
		if err != nil {
			return nil, err
		}
		j := &jetStream{group: g, url: "nats://" + loopback(port), prefetch: o.prefetch}
		defer func() {
			if err != nil {
				err = errors.Join(err, j.Close())
			}
		}()
		config := filepath.Join(g.folder, "nats.conf")
		if err := os.WriteFile(config, []byte(natsConfig(port, g.folder, always)), 0o600); err != nil {
			return nil, fmt.Errorf("configure NATS: %w", err)
		}
		p, err := g.start("nats", syscall.SIGKILL, exec.Command(s.programs["nats-server"], "-c", config))
		if err != nil {
			return nil, err
		}
		return j, p.ready(ctx, j.declare)
	}
}

func natsConfig(port int, folder string, always bool) string {
	sync := ""
	if always {
		sync = "\n  sync_interval: always"
	}
	return fmt.Sprintf("listen: %q\njetstream {\n  store_dir: %q%s\n}\n", loopback(port), filepath.Join(folder, "jetstream"), sync)
}

func (j *jetStream) connect() (*nats.Conn, error) {
	return nats.Connect(j.url, nats.NoReconnect(), nats.Timeout(10*time.Second))
}

// declare makes the stream and its consumer, which shows that the server is ready.
func (j *jetStream) declare(ctx context.Context) (err error) {
	if j.control == nil {
		if j.control, err = j.connect(); err != nil {
			return err
		}
	}
	js, err := jetstream.New(j.control)
	if err != nil {
		return err
	}
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: queueName, Subjects: []string{queueName}, Storage: jetstream.FileStorage})
	if err != nil {
		return err
	}
	j.queue, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: queueName, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: 2 * j.prefetch, // above the prefetch of the client, which is the effective bound
	})
	j.version = fmt.Sprintf("nats-server %s; %s", j.control.ConnectedServerVersion(), moduleVersion("github.com/nats-io/nats.go"))
	return err
}

// Version implements server.
func (j *jetStream) Version() string { return j.version }

// Left implements server.
func (j *jetStream) Left(ctx context.Context) (int64, error) {
	info, err := j.queue.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}

// Close implements server.
func (j *jetStream) Close() error {
	if j.control != nil {
		j.control.Close()
	}
	return j.group.Close()
}

// Publisher implements server.
func (j *jetStream) Publisher(context.Context) (publisher, error) {
	c, err := j.connect()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &natsPublisher{c, js}, nil
}

type natsPublisher struct {
	connection *nats.Conn
	stream     jetstream.JetStream
}

// Publish implements publisher. The client repeats a publish only if no stream listens, never one
// that may be stored.
func (p *natsPublisher) Publish(ctx context.Context, body []byte) error {
	_, err := p.stream.Publish(ctx, queueName, body)
	return err
}

// Close implements publisher.
func (p *natsPublisher) Close() error {
	p.connection.Close()
	return nil
}

// Consume implements server. The consumer has its own connection.
func (j *jetStream) Consume(receive func([]byte)) (consumer, error) {
	c, err := j.connect()
	if err != nil {
		return nil, err
	}
	k := &natsConsumer{connection: c}
	if err := k.start(j, receive); err != nil {
		c.Close()
		return nil, err
	}
	return k, nil
}

type natsConsumer struct {
	connection *nats.Conn
	consuming  jetstream.ConsumeContext
	err        error // the first one; written by the one goroutine that calls the handler
}

func (k *natsConsumer) start(j *jetStream, receive func([]byte)) error {
	js, err := jetstream.New(k.connection)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	queue, err := js.Consumer(ctx, queueName, queueName)
	if err != nil {
		return err
	}
	k.consuming, err = queue.Consume(func(m jetstream.Msg) {
		receive(m.Data())
		if err := m.Ack(); err != nil && k.err == nil {
			k.err = fmt.Errorf("acknowledge: %w", err)
		}
	}, jetstream.PullMaxMessages(j.prefetch))
	return err
}

// Close implements consumer. The flush sends the last acknowledgements to the server.
func (k *natsConsumer) Close() error {
	k.consuming.Stop()
	var lost error
	select {
	case <-k.consuming.Closed():
	case <-time.After(10 * time.Second):
		lost = errors.New("the consumer did not stop")
	}
	err := k.connection.FlushTimeout(10 * time.Second)
	k.connection.Close()
	return errors.Join(lost, err, k.err)
}
