package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// A field is one setting of a kind of policy.
type field[P any] struct {
	name   string // form field, and member of the record
	about  string // for the documentation
	parse  func(p *P, text string) error
	format func(p *P) string // text that parse reads
	masked func(p *P) string // what is shown of a secret; nil: format
	kinds  Kind              // to which it means something; 0: all
}

// fields is every setting that a consumer may have, in the order in which they are shown.
var fields = table[Policy]{
	duration("timeout", "a duration from `100ms` to `1h`: the whole exchange of one push attempt; the length of a lease of a pull consumer, which may be up to `12h`",
		minTimeout, maxTimeout, func(p *Policy) *time.Duration { return &p.Timeout }),
	number("maxRetries", "0 to 1000: retries after the first attempt", 0, maxMaxRetries,
		func(p *Policy) *int { return &p.MaxRetries }),
	losses("maxLeasesLost", "0 to 1000: how many leases of a job may end without a word, because their worker or broker died; the next one ends the job as `worker_lost`. Where it is set, lost leases use up none of `maxRetries`; where it is not, it is as `maxRetries`, and they do",
		maxMaxRetries),
	value("backoff", "up to 16 durations, `5s,30s,60s`: the waits before the retries; after the list the last one doubles each time. `constant:30s` is a fixed wait. Of a pull consumer: before a job that a worker gave back as failed, without a delay",
		parseBackoff, func(p *Policy) *Backoff { return &p.Backoff }),
	ofHTTP(value("retryOn", "`all`, or a list of codes and classes, `5xx,404`: another answer makes the job a dead letter at once",
		parseRetryOn, func(p *Policy) *RetryOn { return &p.RetryOn })),
	duration("ttl", "a duration from `100ms` to `8760h`, or `0`: a job older than this is a dead letter, whatever its attempts",
		0, maxWait, func(p *Policy) *time.Duration { return &p.TTL }),
	duration("maxAge", "a duration from `100ms` to `8760h`, or `0`: the objective for the oldest waiting job. Where it is older there is an [alert](notices.md#late-unpolled-silent) `consumer.late`; nothing else follows from it. `0`: none",
		0, maxWait, func(p *Policy) *time.Duration { return &p.MaxAge }),
	value("rateLimit", "`100/1s`: the most attempts in any window of that length, of all brokers together; `none`: no limit",
		parseRate, func(p *Policy) *Rate { return &p.RateLimit }),
	limited("concurrency", "1 to 100000: the most attempts in flight, of all brokers together; `none`: no limit", 100_000,
		func(p *Policy) *int { return &p.Concurrency }),
	ofPush(number("retryShare", "1 to 100 percent: the largest share of push slots and rate for attempts after the first, while first attempts wait; `100`: priority and time alone decide, as they do for pull consumers", 1, 100,
		func(p *Policy) *int { return &p.RetryShare })),
	boolean("ordered", "`true` or `false`: messages with the same `X-Broker-Ordering-Key` are delivered one at a time, in the order of their commit",
		func(p *Policy) *bool { return &p.Ordered }),
	value("onBlocked", "`block`, `skip` or `dead-letter-key`: what happens to the later messages of a key after a dead letter",
		parseOnBlocked, func(p *Policy) *OnBlocked { return &p.OnBlocked }),
	value("filter", "a CEL expression over `payload`, `headers`, `priority`, `contentType` and `producer`, up to 2048 bytes: messages for which it is not true are left out",
		parseFilter, func(p *Policy) *Filter { return &p.Filter }),
	ofPush(boolean("adaptive", "`true` or `false`: the broker sends slower while attempts fail, down to one a minute, and faster by steps when they succeed",
		func(p *Policy) *bool { return &p.Adaptive })),
	ofPush(number("tombstoneAfter", "0 to 10000: more failures than this within `tombstoneWindow` make the consumer `DEAD`; `0`: never", 0, 10_000,
		func(p *Policy) *int { return &p.TombstoneAfter })),
	ofPush(duration("tombstoneWindow", "a duration from `1s` to `720h`: the sliding window of `tombstoneAfter`", time.Second, 720*time.Hour,
		func(p *Policy) *time.Duration { return &p.TombstoneWindow })),
	ofHTTP(value("statusUrl", "a URL with `{messageID}`: the broker asks it before it repeats an attempt that the consumer may have processed",
		parseStatusURL, func(p *Policy) *StatusURL { return &p.StatusURL })),
	ofHeaders(secret("signingSecret", "`whsec_` and base64 of 24 to 64 bytes, or `generate`: signs deliveries as Standard Webhooks. Shown once",
		parseSecret, func(p *Policy) *Secret { return &p.SigningSecret })),
	ofHeaders(secret("signingSecretPrevious", "the secret before; it signs too until `signingOverlap` has passed. Set by a change of `signingSecret`",
		parsePrevious, func(p *Policy) *Secret { return &p.SigningSecretPrevious })),
	ofHeaders(duration("signingOverlap", "a duration from `0` to `720h`: how long a replaced secret still signs", 0, 720*time.Hour,
		func(p *Policy) *time.Duration { return &p.SigningOverlap })),
	ofHeaders(value("headers", "up to 20 lines `Name: value`: sent with each attempt. Secrets belong into `authorization`",
		parseHeaders, func(p *Policy) *Headers { return &p.Headers })),
	ofHeaders(secret("authorization", "`basic user:password`, `bearer TOKEN`, `oauth2 TOKEN_URL CLIENT_ID CLIENT_SECRET [SCOPE...]`, or any other scheme and its credentials, sent as they are: `Splunk TOKEN`. The case of a scheme does not matter. The credentials of each attempt, never shown. Of a [NATS](nats.md) callback: `basic`, `bearer`, `nkey SEED` or `jwt JWT SEED`, those of the connection",
		parseAuthorization, func(p *Policy) *Authorization { return &p.Authorization })),
	ofHeaders(value("identity", "`full`, or `minimal`: what a delivery tells the consumer beside the payload and its metadata. `minimal` leaves out the token of the consumer, each `X-Broker-*` header and `X-Request-ID`; `webhook-id` and `webhook-timestamp` are then always there",
		parseDisclosure, func(p *Policy) *Disclosure { return &p.Identity })),
	value("dlq", "`keep`, `redrive` after recovery, `forward:CHANNEL`, or `expire:DURATION`: what becomes of dead letters",
		parseDLQ, func(p *Policy) *DLQ { return &p.DLQ }),
	ofAnswers(value("responses", "`off`, `store`, or `callback`: what becomes of 2xx answers: only their status counts, they are kept for the producer of the message, or they are also delivered to it",
		parseResponses, func(p *Policy) *Responses { return &p.Responses })),
	ofAnswers(number("responseMaxBytes", "1 to 1048576: the bytes of a response that are kept; more are cut off and marked", 1, MaxResponse,
		func(p *Policy) *int { return &p.ResponseMaxBytes })),
	ofAnswers(value("responseHeaders", "up to 32 names or prefixes, `content-type,x-*`: the headers of a response that are kept, besides those that say how its body is to be read; never cookies or credentials",
		parseHeaderNames, func(p *Policy) *HeaderNames { return &p.ResponseHeaders })),
	ofAnswers(duration("responseTTL", "a duration from `100ms` to `8760h`: the age at which a response is dropped; `0`: with its message",
		0, maxWait, func(p *Policy) *time.Duration { return &p.ResponseTTL })),
	ofHTTP(boolean("async", "`true` or `false`: an answer with `asyncStatus` means *accepted*, and the result comes later",
		func(p *Policy) *bool { return &p.Async })),
	ofHTTP(value("asyncStatus", "up to 8 statuses from 200 to 299, `202`: the answers that mean *accepted*",
		parseStatuses, func(p *Policy) *Statuses { return &p.AsyncStatus })),
	ofHTTP(value("resultUrl", "a URL with `{messageID}`: where the result is polled if the answer had no `Location`",
		parseStatusURL, func(p *Policy) *StatusURL { return &p.ResultURL })),
	ofAnswers(duration("resultDeadline", "a duration from `1s` to `8760h`: how long after its acceptance a result is waited for", time.Second, maxWait,
		func(p *Policy) *time.Duration { return &p.ResultDeadline })),
	seconds("sqsDelay", "whole seconds from `0` to `15m`: of a [queue of SQS clients](sqs.md), `DelaySeconds` of messages that are sent without one",
		15*time.Minute, func(p *Policy) *time.Duration { return &p.SQSDelay }),
	seconds("sqsWait", "whole seconds from `0` to `20s`: of a queue of SQS clients, `WaitTimeSeconds` of receives without one",
		20*time.Second, func(p *Policy) *time.Duration { return &p.SQSWait }),
	of(ByMail, value("subject", "up to 256 bytes with [places](mail.md#templates) like `{{payload.order.id}}`: the subject of the mails to a `mailto:` callback",
		parseSubject, func(p *Policy) *Template { return &p.Subject })),
	of(ByMail, value("body", "up to 4096 bytes with places: the text of the mails to a `mailto:` callback. By default `{{payload}}`",
		parseText, func(p *Policy) *Template { return &p.Body })),
	of(ByMail, value("collect", "`20/5s`: [one mail for up to 20 jobs](mail.md#several-jobs-in-a-mail) that come within 5 seconds. 2 to 100 jobs, `100ms` to `1h`, and at most a quarter of `timeout`; `none`: a mail for each job",
		parseCollect, func(p *Policy) *Rate { return &p.Collect })),
}

// ofPush is a field that does not apply to a pull consumer, which the broker does not call.
func ofPush[P any](f field[P]) field[P] { return of(ByHTTP|ByMail|ByNATS, f) }

// ofHTTP is a field of requests and their answers.
func ofHTTP[P any](f field[P]) field[P] { return of(ByHTTP, f) }

// ofHeaders is a field of what is sent with a payload: headers, credentials, signatures.
func ofHeaders[P any](f field[P]) field[P] { return of(ByHTTP|ByNATS, f) }

// ofAnswers is a field of what consumers answer with.
func ofAnswers[P any](f field[P]) field[P] { return of(ByPull|ByHTTP, f) }

// of is a field that applies to some kinds of consumers.
func of[P any](kinds Kind, f field[P]) field[P] {
	f.kinds = kinds
	return f
}

// A text is a value that its String method shows in the form that parses.
type text interface {
	comparable
	fmt.Stringer
}

// value is the field of a value with a parser of its own.
func value[P any, T text](name, about string, parse func(string) (T, error), of func(*P) *T) field[P] {
	return field[P]{
		name: name, about: about,
		parse: func(p *P, text string) error {
			v, err := parse(text)
			if err == nil {
				*of(p) = v
			}
			return err
		},
		format: func(p *P) string { return (*of(p)).String() },
	}
}

// secret is the field of a value whose text is never shown.
func secret[P any, T interface {
	text
	Masked() string
}](name, about string, parse func(string) (T, error), of func(*P) *T) field[P] {
	f := value(name, about, parse, of)
	f.masked = func(p *P) string { return (*of(p)).Masked() }
	return f
}

// duration is the field of a duration. Where least is 0, "0" means never.
func duration[P any](name, about string, least, most time.Duration, of func(*P) *time.Duration) field[P] {
	return field[P]{
		name: name, about: about,
		parse: func(p *P, text string) error {
			d, err := quantity.Duration(text)
			if err != nil || d < least || d > most || d > 0 && d < minTimeout {
				if least == 0 {
					return fmt.Errorf("must be 0, or a duration from %s to %s", short(minTimeout), short(most))
				}
				return fmt.Errorf("must be a duration from %s to %s", short(least), short(most))
			}
			*of(p) = d
			return nil
		},
		format: func(p *P) string { return short(*of(p)) },
	}
}

// seconds is the field of a duration of whole seconds from 0.
func seconds[P any](name, about string, most time.Duration, of func(*P) *time.Duration) field[P] {
	f := duration(name, about, 0, most, of)
	parse := f.parse
	f.parse = func(p *P, text string) error {
		var q P
		if parse(&q, text) != nil || *of(&q)%time.Second != 0 {
			return fmt.Errorf("must be whole seconds from 0s to %s", short(most))
		}
		*of(p) = *of(&q)
		return nil
	}
	return f
}

// number is the field of a whole number.
func number[P any](name, about string, least, most int, of func(*P) *int) field[P] {
	return field[P]{
		name: name, about: about,
		parse: func(p *P, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < least || n > most || strings.HasPrefix(text, "+") {
				return fmt.Errorf("must be a whole number from %d to %d", least, most)
			}
			*of(p) = n
			return nil
		},
		format: func(p *P) string { return strconv.Itoa(*of(p)) },
	}
}

// losses is the field of LossBudget.
func losses(name, about string, most int) field[Policy] {
	f := number(name, about, 0, most, func(p *Policy) *int { return &p.LossBudget })
	parse := f.parse
	f.parse = func(p *Policy, text string) error {
		err := parse(p, text)
		if err == nil {
			p.LossBudget++
		}
		return err
	}
	f.format = func(p *Policy) string { return strconv.Itoa(p.MaxLost()) }
	return f
}

// limited is the field of a number that may be unlimited, which is 0 in the policy.
func limited[P any](name, about string, most int, of func(*P) *int) field[P] {
	f := number(name, about, 1, most, of)
	parse, format := f.parse, f.format
	f.parse = func(p *P, text string) error {
		if text == "none" {
			*of(p) = 0
			return nil
		}
		if err := parse(p, text); err != nil {
			return fmt.Errorf("%w, or none", err)
		}
		return nil
	}
	f.format = func(p *P) string {
		if *of(p) == 0 {
			return "none"
		}
		return format(p)
	}
	return f
}

// boolean is the field of a yes or no.
func boolean[P any](name, about string, of func(*P) *bool) field[P] {
	return field[P]{
		name: name, about: about,
		parse: func(p *P, text string) error {
			if text != "true" && text != "false" {
				return errors.New("must be true or false")
			}
			*of(p) = text == "true"
			return nil
		},
		format: func(p *P) string { return strconv.FormatBool(*of(p)) },
	}
}

// Set sets one field from its text, as the form of a PUT has it. The error says what the field must
// be, and p is then unchanged.
func Set(p *Policy, name, text string) error { return fields.set(p, name, text) }

// CheckTTL refuses a time to live that no consumer could set.
func CheckTTL(ttl time.Duration) error {
	if ttl == 0 || ttl >= minTimeout && ttl <= maxWait {
		return nil
	}
	return fmt.Errorf("must be 0 or from %s to %s", short(minTimeout), short(maxWait))
}

// Bounds of the settings of one consumer.
const (
	minTimeout, maxTimeout = 100 * time.Millisecond, 12 * time.Hour
	maxMaxRetries          = 1000
)
