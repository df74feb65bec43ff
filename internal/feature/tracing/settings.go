package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Prefix begins the names of the variables that Read takes.
const Prefix = "OTEL_"

// Settings say what is recorded and where it goes. The zero value records nothing.
type Settings struct {
	On       bool
	Endpoint string            // URL of the receiver of traces
	Headers  map[string]string // of each export; secrets
	Gzip     bool
	Timeout  time.Duration // of one export
	Resource map[string]string

	Queue, Batch int           // spans
	Delay        time.Duration // between two exports

	Follow   time.Duration // an attempt that begins within it of the publish is a child of it
	Failures bool          // failed attempts are recorded, also of messages that are not sampled

	sampler sampler
}

// The defaults of the specification of OpenTelemetry.
const (
	defaultTimeout = 10 * time.Second
	defaultDelay   = 5 * time.Second
	defaultQueue   = 2048
	defaultBatch   = 512
	tracesPath     = "/v1/traces"
)

// A Problem is something wrong with a variable.
type Problem struct{ Name, Text string }

// Read reads the variables OTEL_*. wrong are those with which nothing can be sent; ignored are those
// whose value the specification wants ignored. Neither shows the value of a secret. Without an
// endpoint the result is off, and nothing is wrong.
func Read(values map[string]string) (s Settings, wrong, ignored []Problem) {
	r := reader{values: values}
	s = Settings{Timeout: defaultTimeout, Delay: defaultDelay, Queue: defaultQueue, Batch: defaultBatch}
	s.Endpoint = r.endpoint()
	exporter := r.exporter(s.Endpoint != "")
	if s.Endpoint == "" || exporter == "none" || r.truth("OTEL_SDK_DISABLED") {
		return Settings{}, nil, r.ignored
	}
	s.On = true
	r.protocol()
	s.Gzip = r.compression()
	s.Headers = r.pairs(r.nameOf("HEADERS"), true)
	r.files()
	s.Timeout = r.milliseconds(r.nameOf("TIMEOUT"), s.Timeout)
	s.Delay = r.milliseconds("OTEL_BSP_SCHEDULE_DELAY", s.Delay)
	s.Timeout = min(s.Timeout, r.milliseconds("OTEL_BSP_EXPORT_TIMEOUT", s.Timeout))
	s.Queue = r.count("OTEL_BSP_MAX_QUEUE_SIZE", s.Queue, mostQueued)
	s.Batch = min(r.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", s.Batch, mostQueued), s.Queue)
	s.sampler = r.sampler()
	s.Resource = r.pairs("OTEL_RESOURCE_ATTRIBUTES", false)
	if name := r.get("OTEL_SERVICE_NAME"); name != "" {
		if s.Resource == nil {
			s.Resource = map[string]string{}
		}
		s.Resource["service.name"] = name
	}
	return s, r.wrong, r.ignored
}

// mostQueued bounds the queue of spans: some hundred MiB.
const mostQueued = 1 << 17

type reader struct {
	values         map[string]string
	wrong, ignored []Problem
}

func (r *reader) get(name string) string { return strings.TrimSpace(r.values[name]) }

func (r *reader) refuse(name, format string, args ...any) {
	r.wrong = append(r.wrong, Problem{name, fmt.Sprintf(format, args...)})
}

func (r *reader) ignore(name, format string, args ...any) {
	r.ignored = append(r.ignored, Problem{name, fmt.Sprintf(format, args...)})
}

// nameOf returns the name of the variable that counts for traces: that of the signal, or the general one.
func (r *reader) nameOf(what string) string {
	if name := "OTEL_EXPORTER_OTLP_TRACES_" + what; r.get(name) != "" {
		return name
	}
	return "OTEL_EXPORTER_OTLP_" + what
}

// endpoint returns the URL of the receiver, "" for none. To the general one the path is added; a URL
// that cannot be read counts as given.
func (r *reader) endpoint() string {
	name := r.nameOf("ENDPOINT")
	text := r.get(name)
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		r.refuse(name, "must be an http or https URL without query and fragment, like http://127.0.0.1:4318")
	case u.User != nil:
		r.refuse(name, "must not have a user name or password; put credentials into OTEL_EXPORTER_OTLP_HEADERS")
	case name == "OTEL_EXPORTER_OTLP_ENDPOINT":
		return strings.TrimSuffix(text, "/") + tracesPath
	}
	return text
}

// exporter returns OTEL_TRACES_EXPORTER, and none where it is otlp without an endpoint.
func (r *reader) exporter(endpoint bool) string {
	const name = "OTEL_TRACES_EXPORTER"
	switch text := strings.ToLower(r.get(name)); {
	case text == "", text == "none", text == "otlp" && endpoint:
		return text
	case text == "otlp":
		r.ignore(name, "is otlp, and there is no OTEL_EXPORTER_OTLP_ENDPOINT: nothing is traced")
	case endpoint:
		r.refuse(name, "must be otlp or none, not %q", text)
	}
	return ""
}

func (r *reader) protocol() {
	name := r.nameOf("PROTOCOL")
	if text := strings.ToLower(r.get(name)); text != "" && text != "http/protobuf" {
		r.refuse(name, "must be http/protobuf, which this broker speaks (usually at port 4318), not %q", text)
	}
}

func (r *reader) compression() bool {
	name := r.nameOf("COMPRESSION")
	switch text := strings.ToLower(r.get(name)); text {
	case "gzip":
		return true
	case "", "none":
	default:
		r.refuse(name, "must be gzip or none, not %q", text)
	}
	return false
}

// files refuses certificates that cannot be read. The exporter reads them itself.
func (r *reader) files() {
	for _, what := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		name := r.nameOf(what)
		if path := r.get(name); path != "" {
			if _, err := os.ReadFile(path); err != nil {
				r.refuse(name, "names a file that cannot be read")
			}
		}
	}
}

// pairs reads a list of the form a=1,b=2, with values in percent encoding. Of a list of secrets a
// mistake is refused; of another one it is ignored, with the whole list.
func (r *reader) pairs(name string, secret bool) map[string]string {
	text := r.get(name)
	if text == "" {
		return nil
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		key = strings.TrimSpace(key)
		bad := !ok || err != nil || key == "" || secret && (!headerName(key) || strings.ContainsAny(value, "\r\n\x00"))
		switch {
		case bad && secret:
			r.refuse(name, "must be a list of headers like name=value,name=value, with values in percent encoding")
			return nil
		case bad:
			r.ignore(name, "must be a list like name=value,name=value, with values in percent encoding; it is ignored")
			return nil
		}
		out[key] = value
	}
	return out
}

func headerName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func (r *reader) milliseconds(name string, otherwise time.Duration) time.Duration {
	return time.Duration(r.count(name, int(otherwise.Milliseconds()), 3_600_000)) * time.Millisecond
}

// count reads a whole number from 1 to most.
func (r *reader) count(name string, otherwise, most int) int {
	text := r.get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		r.ignore(name, "must be a whole number from 1 to %d, not %q; it is ignored", most, text)
		return otherwise
	}
	return n
}

// truth reads a truth value: anything but true is false.
func (r *reader) truth(name string) bool {
	text := strings.ToLower(r.get(name))
	if text != "" && text != "true" && text != "false" {
		r.ignore(name, "must be true or false, not %q; it counts as false", text)
	}
	return text == "true"
}

// samplers are the values of OTEL_TRACES_SAMPLER.
var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on",
	"parentbased_always_off", "parentbased_traceidratio"}

func (r *reader) sampler() sampler {
	const name, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	text := strings.ToLower(r.get(name))
	if text != "" && !slices.Contains(samplers, text) {
		r.ignore(name, "must be one of %s, not %q; parentbased_always_on counts", strings.Join(samplers, ", "), text)
		text = ""
	}
	if text == "" {
		text = "parentbased_always_on"
	}
	kind, parent := strings.CutPrefix(text, "parentbased_")
	s := sampler{parent: parent}
	switch kind {
	case "always_on":
		s.bound = always
	case "traceidratio":
		s.bound = r.ratio(argument)
	}
	return s
}

func (r *reader) ratio(name string) uint64 {
	text := r.get(name)
	if text == "" {
		return always
	}
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		r.ignore(name, "must be a number from 0 to 1, not %q; 1 counts", text)
		return always
	}
	return uint64(share * always)
}
