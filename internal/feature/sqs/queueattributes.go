package sqs

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// The attributes of a queue. Those that can be set are fields of its consumer; the others have one value here,
// and no other one is taken.

// The bounds of SQS.
const (
	mostVisibility = 43200 // seconds
	mostReceives   = 1000
	// leastTimeout is the shortest lease that a consumer may have by itself, for a VisibilityTimeout of 0.
	leastTimeout = 100 * time.Millisecond
	// usualVisibility is the VisibilityTimeout of a queue that is made without one.
	usualVisibility = "30"
)

// The attributes that are fields of a consumer.
const (
	visibilityTimeout = "VisibilityTimeout"
	redrivePolicy     = "RedrivePolicy"
	delaySeconds      = "DelaySeconds"                  // of messages that are sent without one
	receiveWait       = "ReceiveMessageWaitTimeSeconds" // of receives without one
)

// fixed are the attributes with one value, which may be set to it.
var fixed = map[string]string{
	"MaximumMessageSize": strconv.Itoa(mostMessage),
	"KmsMasterKeyId":     "", "SqsManagedSseEnabled": "false", "Policy": "", "RedriveAllowPolicy": "",
}

// ofFIFO are those of a FIFO queue.
var ofFIFO = map[string]string{
	"FifoQueue": "true", "ContentBasedDeduplication": "true", "DeduplicationScope": "queue",
	"FifoThroughputLimit": "perQueue",
}

// readOnly are the attributes that SQS does not set either.
var readOnly = []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
	"ApproximateNumberOfMessagesDelayed", "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}

// known reports whether SQS has an attribute of that name.
func knownAttribute(name string) bool {
	if _, ok := fixed[name]; ok {
		return true
	}
	if _, ok := ofFIFO[name]; ok {
		return true
	}
	return slices.Contains(readOnly, name) || slices.Contains([]string{"All", visibilityTimeout, redrivePolicy,
		delaySeconds, receiveWait, "MessageRetentionPeriod", "KmsDataKeyReusePeriodSeconds"}, name)
}

// attributeOf is the attribute that a field of a consumer is.
func attributeOf(field string) string {
	switch field {
	case "timeout":
		return visibilityTimeout
	case "maxRetries":
		return redrivePolicy
	case "sqsDelay":
		return delaySeconds
	case "sqsWait":
		return receiveWait
	}
	return "FifoQueue"
}

// newFields returns the fields of the consumer of a new queue.
func (c *call) newFields(in *createQueue) (map[string]string, error) {
	fifo := strings.HasSuffix(in.QueueName, fifoSuffix)
	fields, err := c.fieldsOf(in.Attributes, fifo)
	if err != nil {
		return nil, err
	}
	if fields["timeout"] == "" {
		fields["timeout"] = usualVisibility + "s"
	}
	if fifo {
		fields["ordered"] = "true"
	}
	return fields, nil
}

// fieldsOf returns the fields of a consumer that attributes set.
func (c *call) fieldsOf(attributes map[string]string, fifo bool) (map[string]string, error) {
	fields := map[string]string{}
	for name, value := range attributes {
		var err error
		switch name {
		case visibilityTimeout:
			var d time.Duration
			d, err = secondsIn(name, value, mostVisibility)
			fields["timeout"] = policy.Short(max(d, leastTimeout))
		case delaySeconds:
			var d time.Duration
			d, err = secondsIn(name, value, mostDelay)
			fields["sqsDelay"] = policy.Short(d)
		case receiveWait:
			var d time.Duration
			d, err = secondsIn(name, value, mostWait)
			fields["sqsWait"] = policy.Short(d)
		case redrivePolicy:
			fields["maxRetries"], err = retriesOf(value)
		default:
			err = checkFixed(name, value, fifo)
		}
		if err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// secondsIn reads an attribute that is a number of seconds.
func secondsIn(name, value string, most int) (time.Duration, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > most {
		return 0, badAttributeValue.New("Invalid value for the parameter %s: it must be an integer from 0 to %d.", name, most)
	}
	return time.Duration(n) * time.Second, nil
}

// retriesOf reads a RedrivePolicy: maxReceiveCount n is n-1 retries. Its target is not used: dead letters stay
// with their queue, where the DLQ of the consumer has them.
func retriesOf(value string) (string, error) {
	if value == "" {
		return "", nil // the default
	}
	var p struct {
		MaxReceiveCount     json.RawMessage `json:"maxReceiveCount"`
		DeadLetterTargetArn string          `json:"deadLetterTargetArn"`
	}
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return "", badAttributeValue.New("Invalid value for the parameter RedrivePolicy: it must be a JSON object like " +
			`{"deadLetterTargetArn":"...","maxReceiveCount":5}.`)
	}
	n, err := strconv.Atoi(strings.Trim(string(p.MaxReceiveCount), `"`))
	if err != nil || n < 1 || n > mostReceives {
		return "", badAttributeValue.New("Invalid value for the parameter RedrivePolicy: maxReceiveCount must be an integer "+
			"from 1 to %d.", mostReceives)
	}
	return strconv.Itoa(n - 1), nil
}

// checkFixed refuses an attribute that cannot have the value.
func checkFixed(name, value string, fifo bool) error {
	want, ok := fixed[name]
	if !ok {
		want, ok = ofFIFO[name]
		if ok && !fifo {
			if value == "false" {
				return nil
			}
			return badAttributeName.New("The attribute %s is of FIFO queues, whose names end with %s.", name, fifoSuffix)
		}
	}
	switch {
	case ok && value == want:
		return nil
	case ok && want == "":
		return badAttributeValue.New("This broker supports no %s: it must be absent or empty.", name)
	case ok:
		return badAttributeValue.New("Invalid value for the parameter %s: this broker knows %s only.", name, want)
	case name == "MessageRetentionPeriod", name == "KmsDataKeyReusePeriodSeconds":
		return badAttributeValue.New("The attribute %s cannot be set here. Messages that are not received stay for ever, "+
			"or for the ttl of the consumer.", name)
	case knownAttribute(name):
		return badAttributeName.New("The attribute %s cannot be set.", name)
	}
	return badAttributeName.New("Unknown Attribute %.64s.", name)
}

func (c *call) setAttributes(in *setAttributes) (any, error) {
	q, err := c.queue(in.QueueUrl)
	if err == nil {
		err = c.mayManage()
	}
	if err != nil {
		return nil, err
	}
	if len(in.Attributes) == 0 {
		return nil, missingParameter("Attributes")
	}
	fields, err := c.fieldsOf(in.Attributes, q.fifo())
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	return nil, c.timed(func(ctx context.Context) error { return c.Manage.ChangeQueue(ctx, c.rc, q.name(), fields) })
}

func (c *call) getAttributes(in *getAttributes) (any, error) {
	q, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	for _, name := range in.AttributeNames {
		if !knownAttribute(name) {
			return nil, badAttributeName.New("Unknown Attribute %.64s.", name)
		}
	}
	if len(in.AttributeNames) == 0 {
		return &queueAttributes{}, nil
	}
	all := c.attributesOf(q)
	if slices.ContainsFunc(in.AttributeNames, func(name string) bool {
		return name == "All" || strings.HasPrefix(name, "Approximate")
	}) {
		err = c.timed(func(ctx context.Context) error {
			depth, err := c.Manage.Depth(ctx, q.k)
			all["ApproximateNumberOfMessages"] = strconv.Itoa(depth.Waiting)
			all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(depth.InFlight)
			all["ApproximateNumberOfMessagesDelayed"] = strconv.Itoa(depth.Delayed)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	out := &queueAttributes{Attributes: map[string]string{}}
	for name, value := range all {
		if slices.Contains(in.AttributeNames, "All") || slices.Contains(in.AttributeNames, name) {
			out.Attributes[name] = value
		}
	}
	return out, nil
}

// attributesOf returns the attributes of a queue that are not counted.
func (c *call) attributesOf(q queue) map[string]string {
	changed := strconv.FormatInt(q.k.ChangedAt.Unix(), 10)
	arn := "arn:aws:sqs:penstock:000000000000:" + q.name().String()
	all := map[string]string{
		"QueueArn": arn, "CreatedTimestamp": changed, "LastModifiedTimestamp": changed,
		"SqsManagedSseEnabled":   "false",
		"MaximumMessageSize":     strconv.Itoa(min(mostMessage, c.o.Plane.MaxBody())),
		"MessageRetentionPeriod": "1209600", // the longest that SQS knows: messages stay until they are received
	}
	p := c.o.Policies.Of(q.k.Policy)
	all[delaySeconds], all[receiveWait] = seconds(p.SQSDelay), seconds(p.SQSWait)
	if p.TTL > 0 {
		all["MessageRetentionPeriod"] = seconds(p.TTL)
	}
	for _, s := range c.o.Policies.Show(q.k.Policy, true) {
		switch {
		case s.Name == "Timeout":
			if d, err := quantity.Duration(s.Value); err == nil {
				all[visibilityTimeout] = seconds(d)
			}
		case s.Name == "MaxRetries" && !s.Inherited:
			all[redrivePolicy] = `{"deadLetterTargetArn":"` + arn + `/dlq","maxReceiveCount":` + strconv.Itoa(p.MaxAttempts()) + `}`
		}
	}
	if q.fifo() {
		for name, value := range ofFIFO {
			all[name] = value
		}
	}
	return all
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Floor(d.Seconds())), 10)
}
