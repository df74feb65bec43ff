package sqs

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// pathPrefix begins the path of each QueueUrl.
const pathPrefix = "/sqs/"

// A queue is a pull consumer with its channel.
type queue struct {
	ch *catalogue.Channel
	k  *durable.Consumer
}

const fifoSuffix = ".fifo"

// fifo reports whether the queue is one by its name.
func (q queue) fifo() bool { return strings.HasSuffix(q.k.ID, fifoSuffix) }

func (q queue) name() Name { return Name{q.ch.ID, q.k.ID} }

// String is the name of a queue in lists: the ID of its consumer, with that of the channel where the two differ.
func (n Name) String() string {
	if n.Channel == n.Consumer {
		return n.Consumer
	}
	return n.Channel + "/" + n.Consumer
}

// url is the QueueUrl, under the name by which the client knows the broker.
func (c *call) url(n Name) string {
	h := &c.rc.Request.Header
	scheme := "http://"
	if c.rc.IsTLS() || bytes.EqualFold(h.Peek("X-Forwarded-Proto"), []byte("https")) {
		scheme = "https://"
	}
	return scheme + string(h.Host()) + pathPrefix + url.PathEscape(n.Channel) + "/" + url.PathEscape(n.Consumer)
}

// nameIn returns the queue of a QueueUrl, of which only the path counts. A request without one means the queue
// of its own path.
func (c *call) nameIn(queueURL string) (Name, error) {
	path := queueURL
	if path == "" {
		path = string(c.rc.Path())
		if !strings.HasPrefix(path, pathPrefix) {
			return Name{}, missingParameter("QueueUrl")
		}
		channel, consumer, _ := strings.Cut(path[len(pathPrefix):], "/")
		return validName(channel, consumer, queueURL)
	}
	if _, rest, ok := strings.Cut(path, "://"); ok {
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			return Name{}, noQueue.New("The QueueUrl %.512q has no path.", queueURL)
		}
		path = rest[slash:]
	}
	path, _, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(path, pathPrefix) {
		return Name{}, noQueue.New("The QueueUrl %.512q is none of this broker: its path is %s{channel}/{consumer}.",
			queueURL, pathPrefix)
	}
	channel, consumer, _ := strings.Cut(path[len(pathPrefix):], "/")
	channel, err := url.PathUnescape(channel)
	if err == nil {
		consumer, err = url.PathUnescape(consumer)
	}
	if err != nil {
		channel = ""
	}
	return validName(channel, consumer, queueURL)
}

func validName(channel, consumer, given string) (Name, error) {
	if !ident.ValidName(channel) || !ident.ValidName(consumer) {
		return Name{}, noQueue.New("The QueueUrl %.512q names no queue.", given)
	}
	return Name{channel, consumer}, nil
}

var errNoQueue = noQueue.New("The specified queue does not exist.")

// queue returns the queue of a QueueUrl.
func (c *call) queue(queueURL string) (q queue, err error) {
	n, err := c.nameIn(queueURL)
	if err != nil {
		return q, err
	}
	return c.find(n)
}

// find returns the queue of that name. Before a refusal the copy of the catalogue is refreshed: another broker
// may have made the queue.
func (c *call) find(n Name) (q queue, err error) {
	if !c.who.named(n.Channel) {
		return q, denied.New("Access to the resource %s%s/%s is denied.", pathPrefix, n.Channel, n.Consumer)
	}
	if q = c.known(n); q.k != nil && q.k.Type == durable.Pull {
		return q, nil
	}
	err = c.timed(c.o.Catalogue.Refresh)
	if err != nil {
		return q, err
	}
	switch q = c.known(n); {
	case q.ch == nil && c.o.Elsewhere != nil && c.o.Elsewhere(c.ctx, n.Channel):
		return q, noQueue.New("The channel %s is in another store, which SQS clients reach with an access key of the "+
			"channel.", n.Channel)
	case q.k == nil:
		return q, errNoQueue
	case q.k.Type != durable.Pull:
		return q, noQueue.New("The consumer %s of the channel %s is a push consumer: it is no queue.", n.Consumer, n.Channel)
	}
	return q, nil
}

func (c *call) known(n Name) (q queue) {
	if ident.Reserved(n.Channel) {
		return q
	}
	ch := c.o.Catalogue.Channel(n.Channel)
	if ch == nil {
		return q
	}
	return queue{ch, c.o.Catalogue.Consumer(n.Channel, n.Consumer)}
}

// standing returns the standing of the request as the consumer of a queue.
func (c *call) standing(q queue) catalogue.Standing {
	return c.o.Catalogue.StandingOf(c.ctx, q.ch, q.k, nil, c.still())
}

// queueName is what SQS takes as the name of a new queue.
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// checkNewName refuses the name of a queue that SQS would refuse.
func checkNewName(name string) error {
	if name == "" {
		return missingParameter("QueueName")
	}
	if len(name) > 80 || !queueName.MatchString(strings.TrimSuffix(name, fifoSuffix)) {
		return badValue.New("The name of a queue can only include alphanumeric characters, hyphens, or underscores, " +
			"1 to 80 in length; that of a FIFO queue ends with .fifo.")
	}
	return nil
}

func (c *call) createQueue(in *createQueue) (any, error) {
	if err := checkNewName(in.QueueName); err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		return nil, unsupported.New("Queues of this broker have no tags.")
	}
	n := Name{in.QueueName, in.QueueName}
	fields, err := c.newFields(in)
	if err != nil {
		return nil, err
	}
	err = c.timed(func(ctx context.Context) error {
		if err := c.mayManage(); err != nil {
			return err
		}
		made, err := c.Manage.CreateQueue(ctx, c.rc, n, fields)
		if err != nil || made {
			return err
		}
		return c.same(n, in.Attributes)
	})
	if err != nil {
		return nil, err
	}
	return &queueURL{c.url(n)}, nil
}

// same refuses to create a queue that exists with other attributes.
func (c *call) same(n Name, attributes map[string]string) error {
	q, err := c.find(n)
	if err != nil {
		if f := faultOf(err); f.Code == noQueue.code { // a push consumer
			return queueExists.New("%s", f.Message)
		}
		return err
	}
	fields, err := c.fieldsOf(attributes, q.fifo())
	if err != nil {
		return err
	}
	for name, value := range fields {
		if !c.has(q, name, value) {
			return queueExists.New("A queue already exists with the same name and a different value for attribute %s.",
				attributeOf(name))
		}
	}
	return nil
}

// has reports whether a field of the consumer of a queue has that value; "" is the default.
func (c *call) has(q queue, field, value string) bool {
	return slices.ContainsFunc(c.o.Policies.Show(q.k.Policy, true), func(s policy.Setting) bool {
		return strings.EqualFold(s.Name, field) && (s.Value == value || value == "" && s.Inherited)
	})
}

// mayManage refuses a request that may not change resources.
func (c *call) mayManage() error {
	if c.who.key != nil {
		return denied.New("An access key sends and receives: queues are made, changed and deleted by management.")
	}
	return nil
}

func (c *call) getQueueURL(in *getQueueURL) (any, error) {
	if in.QueueName == "" {
		return nil, missingParameter("QueueName")
	}
	if !ident.ValidName(in.QueueName) {
		return nil, errNoQueue
	}
	q, err := c.find(Name{in.QueueName, in.QueueName})
	if err != nil {
		return nil, err
	}
	return &queueURL{c.url(q.name())}, nil
}

// mostListed bounds a list of queues, as in SQS.
const mostListed = 1000

func (c *call) listQueues(in *listQueues) (any, error) {
	most := mostListed
	if in.MaxResults != nil {
		if most = *in.MaxResults; most < 1 || most > mostListed {
			return nil, invalid(most, "MaxResults", "Must be between 1 and 1000, if provided.")
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(in.NextToken)
	if err != nil {
		return nil, invalid("", "NextToken", "It is not one of an earlier answer.")
	}
	if err := c.timed(c.o.Catalogue.Refresh); err != nil {
		return nil, err
	}
	out := &queueURLs{}
	last := Name{}
	c.eachQueue(string(after), func(n Name) bool {
		if !strings.HasPrefix(n.String(), in.QueueNamePrefix) {
			return true
		}
		if len(out.QueueUrls) == most {
			if in.MaxResults != nil {
				out.NextToken = base64.RawURLEncoding.EncodeToString([]byte(last.Channel + "/" + last.Consumer))
			}
			return false
		}
		out.QueueUrls, last = append(out.QueueUrls, c.url(n)), n
		return true
	})
	return out, nil
}

// listedAtOnce is the number of resources that one look at the catalogue returns.
const listedAtOnce = 500

// eachQueue calls f for the queues that the caller may see, behind the one with the path after, until f returns
// false.
func (c *call) eachQueue(after string, f func(Name) bool) {
	fromChannel, fromConsumer, _ := strings.Cut(after, "/")
	for {
		channels := c.o.Catalogue.Channels(fromChannel, listedAtOnce)
		for _, ch := range channels {
			if ch.ID != fromChannel {
				fromConsumer = ""
			}
			if fromChannel = ch.ID; ident.Reserved(ch.ID) || !c.who.sees(ch) {
				continue
			}
			if !c.eachConsumer(ch.ID, fromConsumer, f) {
				return
			}
		}
		if len(channels) < listedAtOnce {
			return
		}
		fromChannel, fromConsumer = fromChannel+"\x00", ""
	}
}

// eachConsumer calls f for the pull consumers of a channel with an ID above after, until f returns false.
func (c *call) eachConsumer(channel, after string, f func(Name) bool) bool {
	for {
		consumers := c.o.Catalogue.Consumers(channel, after, listedAtOnce)
		for _, k := range consumers {
			if k.Type == durable.Pull && k.ID != after && !f(Name{channel, k.ID}) {
				return false
			}
		}
		if len(consumers) < listedAtOnce {
			return true
		}
		after = consumers[len(consumers)-1].ID
	}
}

// deletable returns the queue of a QueueUrl where deleting is allowed.
func (c *call) deletable(queueURL string) (queue, error) {
	q, err := c.queue(queueURL)
	if err == nil {
		err = c.mayManage()
	}
	if err == nil && !c.Manage.MayDelete() {
		err = unsupported.New("This broker deletes nothing: BROKER_ALLOW_DELETE is off.")
	}
	return q, err
}

func (c *call) deleteQueue(in *queueURL) (any, error) {
	q, err := c.deletable(in.QueueUrl)
	if err == nil {
		err = c.timed(func(ctx context.Context) error { return c.Manage.DeleteQueue(ctx, c.rc, q.name()) })
	}
	return nil, err
}

func (c *call) purgeQueue(in *queueURL) (any, error) {
	q, err := c.deletable(in.QueueUrl)
	if err == nil {
		err = c.Manage.PurgeQueue(c.ctx, c.rc, q.k)
	}
	return nil, err
}
