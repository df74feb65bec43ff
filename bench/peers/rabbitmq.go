package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queueName is the one queue, stream subject or task type of a run.
const queueName = "penstock-peers"

// rabbitMQ is one node with one durable queue. Messages are persistent, each
// publisher waits for the confirm of each message, the consumer acknowledges
// each delivery.
type rabbitMQ struct {
	*group
	url      string
	kind     string // of the queue: classic or quorum
	prefetch int
	version  string
}

// openRabbitMQ starts a node with its own port mapper. The cookie, the configuration, the plugins
// and the data are in the folder of the run instead of the system's installation.
func openRabbitMQ(kind string) func(context.Context, *site, *options) (server, error) {
	return func(ctx context.Context, s *site, o *options) (_ server, err error) {
		var ports [3]int
		for i := range ports {
			if ports[i], err = freePort(); err != nil {
				return nil, err
			}
		}
		g, err := newGroup(s)
		if err != nil {
			return nil, err
		}
		r := &rabbitMQ{group: g, url: "amqp://guest:guest@" + loopback(ports[0]) + "/", kind: kind, prefetch: o.prefetch}
		defer func() {
			if err != nil {
				err = errors.Join(err, g.Close())
			}
		}()
		if err := r.configure(ports[0]); err != nil {
			return nil, err
		}
		mapper := exec.Command(s.programs["epmd"], "-port", strconv.Itoa(ports[1]), "-address", "127.0.0.1")
		if _, err := g.start("epmd", syscall.SIGKILL, mapper); err != nil {
			return nil, err
		}
		node := exec.Command(s.programs["rabbitmq-server"])
		node.Env = r.environment(ports[1], ports[2])
		p, err := g.start("rabbitmq", syscall.SIGKILL, node)
		if err != nil {
			return nil, err
		}
		return r, p.ready(ctx, r.declare)
	}
}

// configure writes the files that the node reads.
func (r *rabbitMQ) configure(port int) error {
	files := map[string]string{
		"rabbitmq.conf":   "listeners.tcp.1 = " + loopback(port) + "\nlog.file.level = warning\n",
		"enabled_plugins": "[].\n",
		"env.conf":        "",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("configure RabbitMQ: %w", err)
		}
	}
	return nil
}

func (r *rabbitMQ) environment(mapperPort, distPort int) []string {
	in := func(name string) string { return filepath.Join(r.folder, name) }
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8",
		"HOME=" + r.folder, // Erlang creates its cookie there
		// With this setting the script becomes the node instead of watching it, so the started
		// process gets the signals and has the CPU time.
		"RUNNING_UNDER_SYSTEMD=true",
		"ERL_EPMD_PORT=" + strconv.Itoa(mapperPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP_SECONDS=0",
		"RABBITMQ_NODENAME=penstock-peers@localhost",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(distPort),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("advanced.config"),
		"RABBITMQ_CONF_ENV_FILE=" + in("env.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + in("config"),
		"RABBITMQ_PID_FILE=" + in("pid"),
	}
}

// declare creates the queue, which shows that the node is ready.
func (r *rabbitMQ) declare(context.Context) error {
	return r.once(func(c *amqp.Connection, ch *amqp.Channel) error {
		r.version = fmt.Sprintf("RabbitMQ %v; %s", c.Properties["version"], moduleVersion("github.com/rabbitmq/amqp091-go"))
		_, err := ch.QueueDeclare(queueName, true, false, false, false, r.arguments())
		return err
	})
}

func (r *rabbitMQ) arguments() amqp.Table { return amqp.Table{"x-queue-type": r.kind} }

// once calls f with a connection that it closes afterwards.
func (r *rabbitMQ) once(f func(*amqp.Connection, *amqp.Channel) error) error {
	c, ch, err := r.dial()
	if err != nil {
		return err
	}
	return errors.Join(f(c, ch), c.Close())
}

func (r *rabbitMQ) dial() (*amqp.Connection, *amqp.Channel, error) {
	c, err := amqp.Dial(r.url)
	if err != nil {
		return nil, nil, err
	}
	ch, err := c.Channel()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, ch, nil
}

// Version implements server.
func (r *rabbitMQ) Version() string { return r.version }

// Left implements server. The consumer's channel is closed by now, so unacknowledged messages are
// back in the queue and counted.
func (r *rabbitMQ) Left(context.Context) (n int64, err error) {
	err = r.once(func(_ *amqp.Connection, ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queueName, true, false, false, false, r.arguments())
		n = int64(q.Messages)
		return err
	})
	return n, err
}

// Publisher implements server.
func (r *rabbitMQ) Publisher(context.Context) (publisher, error) {
	c, ch, err := r.dial()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &amqpPublisher{c, ch}, nil
}

type amqpPublisher struct {
	connection *amqp.Connection
	channel    *amqp.Channel
}

var errNack = errors.New("the server did not confirm the message")

// Publish implements publisher.
func (p *amqpPublisher) Publish(ctx context.Context, body []byte) error {
	confirm, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, "", queueName, false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		ContentType:  "application/octet-stream",
		Body:         body,
	})
	if err != nil {
		return err
	}
	ok, err := confirm.WaitContext(ctx)
	if err == nil && !ok {
		err = errNack
	}
	return err
}

// Close implements publisher.
func (p *amqpPublisher) Close() error { return p.connection.Close() }

// Consume implements server.
func (r *rabbitMQ) Consume(receive func([]byte)) (_ consumer, err error) {
	c, ch, err := r.dial()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := ch.Qos(r.prefetch, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume(queueName, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	k := &amqpConsumer{connection: c, channel: ch, done: make(chan struct{})}
	go func() { // ends when the connection is closed
		defer close(k.done)
		for d := range deliveries {
			receive(d.Body)
			if err := d.Ack(false); err != nil && k.err == nil {
				k.err = fmt.Errorf("acknowledge: %w", err)
			}
		}
	}()
	return k, nil
}

type amqpConsumer struct {
	connection *amqp.Connection
	channel    *amqp.Channel
	done       chan struct{}
	err        error // the first one; read after done
}

// Close implements consumer. It returns after the last delivery in the client is handled, so that
// no delivery is acknowledged after the channel has closed.
func (k *amqpConsumer) Close() error {
	select {
	case <-k.done:
		return errors.Join(errors.New("the connection of the consumer was lost"), k.err)
	default:
	}
	err := k.connection.Close()
	<-k.done
	if errors.Is(k.err, amqp.ErrClosed) {
		k.err = nil // messages in the client return to the queue
	}
	return errors.Join(err, k.err)
}
