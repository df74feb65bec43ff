package main

// This file has what only people know of the API: what parameters and headers mean, which errors a route may
// answer, and examples. Everything else is read from the sources, see doc.go of package openapi.
//
// Lists of routes are patterns, as function fits takes them. Of several lines with one name, the first that fits
// a route counts.

// A word says what a name means on some routes.
type word struct {
	name, routes, text string
	schema             object
}

var (
	aText   = object{{"type", "string"}}
	aNumber = object{{"type", "integer"}}
	aTime   = object{{"type", "string"}, {"format", "date-time"}}
	aFlag   = object{{"type", "boolean"}}
	aPlace  = object{{"type", "string"}, {"maxLength", 255}}
)

func oneOf(names ...string) object { return object{{"type", "string"}, {"enum", names}} }

// pathWords are the parameters of paths.
var pathWords = []word{
	{"producer", "*", "ID of the producer", aPlace},
	{"channel", "*", "ID of the channel", aPlace},
	{"group", "*", "ID of the group", aPlace},
	{"consumer", "*", "ID of the consumer", aPlace},
	{"message", "*", "ID of the message: that of its producer, or the broker's own", aPlace},
	{"job", "*", "ID of the job", aPlace},
	{"scheduled", "*", "ID of the scheduled message: that of its producer, or the broker's own", aPlace},
	{"bulk", "*", "ID of the bulk", aPlace},
	{"replay", "*", "ID of the replay", aPlace},
	{"redrive", "*", "ID of the redrive", aPlace},
	{"receipt", "*", "the receipt in the Location of a 202", aPlace},
	{"link", "*", "the signed part of the link", aPlace},
	{"key", "*", "AccessKeyId of the key", aPlace},
	{"action", "*", "name of the action", aPlace},
	{"token", "*", "ID of the API token", aPlace},
}

// queryWords are the parameters of queries.
var queryWords = []word{
	{"limit", "POST */claim", "most jobs: by default 100, more than 500 counts as 500", aNumber},
	{"limit", "GET /metrics/consumers", "most consumers: by default 1000, and more counts as 1000", aNumber},
	{"limit", "GET /channel/{channel}/message/{message}", "most jobs of the page: by default 1000, and more counts as 1000", aNumber},
	{"limit", "*", "most entries of the page: by default 25, more than 100 counts as 100", aNumber},
	{"size", "*", "another name of limit", aNumber},
	{"first", "GET /ui/*", "where the page begins", aPlace},
	{"first", "GET /audit", "number of the entry at which the page begins", aNumber},
	{"first", "*", "ID at which the page begins", aPlace},
	{"place", "GET /consumers", "ID of the channel of the consumer that first names", aPlace},
	{"place", "*", "where the page begins if what first names is removed; links to a next page have it", aPlace},
	{"after", "*", "where the page begins: links to a next page have it", aPlace},

	{"fingerprint", "*", "of this group of dlq/groups", aText},
	{"reason", "*", "that died of this ReasonCode; several with commas between", aText},
	{"order", "*", "asc: the oldest first; desc: the newest first", oneOf("asc", "desc")},
	{"from", "GET */dlq", "RFC 3339: that died from then on", aTime},
	{"to", "GET */dlq", "RFC 3339: that died up to then", aTime},
	{"from", "GET /audit", "RFC 3339: entries from then on", aTime},
	{"to", "GET /audit", "RFC 3339: entries before then", aTime},
	{"resource", "*", "path of a resource: entries of it, and of what is below it", aText},
	{"from", "GET /history", "RFC 3339: begin of the range; by default an hour ago", aTime},
	{"to", "GET /history", "RFC 3339: end of the range; by default now", aTime},
	{"from", "*", "RFC 3339: messages from then on", aTime},
	{"to", "*", "RFC 3339: messages before then", aTime},

	{"status", "GET */jobs", "the jobs in this state; absent: those that are neither delivered nor dead", oneOf("QUEUED", "DELAYED", "INFLIGHT", "DEAD")},
	{"status", "GET */scheduled-messages", "in this state; may occur twice", oneOf("101", "SCHEDULED", "102", "DISPATCHED")},
	{"status", "GET */messages", "101, 102 or their names; with consumer the state of its job", aText},
	{"statusChangedSince", "*", "RFC 3339: without earlier messages", aTime},
	{"producer", "*", "of this producer", aPlace},
	{"error", "GET */messages", "with consumer: whose job for it failed with this text at last, up to 1 KiB, in any case", aText},
	{"contains", "*", "with this text in the payload, up to 1 KiB", aText},
	{"consumer", "GET /history, GET /ui/*", "of this consumer of the channel", aPlace},
	{"consumer", "*", "that have a job for this consumer", aPlace},
	{"channel", "GET /metrics/consumers, GET /consumers, GET /job-status, GET /dlq-status", "the consumers of this channel", aPlace},
	{"channel", "*", "of this channel", aPlace},
	{"group", "*", "the channels that carry this group", aPlace},
	{"state", "*", "the consumers in this state", oneOf("ACTIVE", "PAUSED", "GONE", "DEAD", "PROBING")},
	{"held", "*", "true: those whose jobs are all held back; false: the others; or the code of why", aText},
	{"sort", "*", "oldest: the longest wait first; dead, queued: the highest count first; failing: the most jobs that wait for another attempt first", oneOf("oldest", "dead", "queued", "failing")},
	{"step", "*", "length of a slot; absent: the finest that still has the begin of the range", oneOf("10s", "1m", "10m")},
	{"forget", "*", "true: the jobs are over, and in no list of dead letters", aFlag},

	{"wait", "POST */claim", "how long to wait for the first job: a duration or seconds, at most 20s", aText},
	{"wait", "*", "how long to wait until until is true: a duration or seconds, at most 60s", aText},
	{"until", "*", "first, all (the default) or quorum:N", aText},
	{"timeout", "*", "length of the leases, seconds", aNumber},

	{"since", "GET /ui/*", "the messages of this time", aText},
	{"q", "GET /ui/*", "an ID, a name, or terms", aText},
	{"q", "GET /docs", "words of routes, types, members and error codes, up to 100 characters", aText},
	{"as", "GET /ui/*", "how the payload is shown", aText},
	{"show", "GET /ui/brokers", "settings: all settings of this broker", aText},
	{"show", "GET /ui/*", "the payload is shown", aText},
	{"next", "GET /ui/*", "the page to go to after the login", aText},
	{"link", "GET /ui/*", "the signed part of the link", aText},
	{"report", "GET /ui/*", "name of the file of a report", aText},
	{"over", "GET /ui/*", "how far back the charts go", oneOf("1h", "24h", "7d", "30d")},
	{"done", "GET /ui/*", "what an action did, as the page says it", aText},
	{"again", "GET /ui/*", "the message to send once more", aText},
	{"canary", "*/ui/*", "one letter first, then 10, then 100, then all", aText},
	{"redrive", "*/ui/*", "ID of the redrive", aText},
}

// headerWords are the headers of requests that the table of routes names. Those whose names OpenAPI leaves out,
// Content-Type among them, are described by the body.
var headerWords = []word{
	{"X-Broker-Message-ID", "*", "ID of the message, unique in the channel, or among the messages of its producer. With one the request is safe to repeat", aPlace},
	{"Idempotency-Key", "*", "instead of an ID: a repeat gets the first answer", aPlace},
	{"X-Broker-Message-Priority", "*", "0 (the default) to 1023, higher first; of lines and rows the default", aNumber},
	{"X-Broker-Message-TTL", "*", "time to live, 100ms to 8760h", aText},
	{"X-Broker-Ordering-Key", "*", "ordered consumers get the messages of a key one at a time", aPlace},
	{"X-Broker-Task", "*", "what kind of job it is, for workers that take some", object{{"type", "string"}, {"maxLength", 128}}},
	{"X-Broker-Consumers", "*", "IDs of the consumers that the message is for, with commas between; absent: all", aText},
	{"X-Broker-Metadata-Headers", "*", "names of headers of this request that go with the message, with commas between", aText},
	{"X-Broker-Scheduled-For", "*", "RFC 3339: the message is sent at this time", aTime},
	{"X-Broker-Delay", "*", "the message is sent so much later: 10s, 1h30m, 2d, or whole seconds", aText},
	{"X-Broker-Recurrence", "*", "the message is sent again and again: a repeating interval of ISO 8601, or cron fields", aText},
	{"X-Broker-Signature", "*", "of a producer with a publish secret: t=SECONDS,v1=HEX", aText},
	{"X-Broker-Bulk-Template", "*", "the template of a bulk whose body is the file, as JSON", aText},
	{"X-Broker-Bulk-Rate", "*", "most messages of the bulk, such as 2000/1s", aText},
	{"X-Broker-Lease", "*", "the lease of the job, as the claim answered it", aText},
	{"X-Broker-Worker", "*", "who the worker is: name; version=...; slots=...", aText},
	{"Accept-Tasks", "*", "the tasks that the worker takes, with commas between", aText},
	{"Prefer", "*", "wait=N: so many seconds for a response, at most 60", aText},
}

const conditional = "PUT *, DELETE /producer/{producer}, DELETE /channel/{channel}, DELETE /group/{group}, DELETE */consumer/{consumer}"

// What has no entity tag, and what has no date of its last change. Each list follows a pattern.
const (
	untagged = ", -GET */queued-jobs, -GET */bad-rows, -GET */messages-status, -GET */reconcile, -GET */revive/{link}" +
		", -GET /receipt/*, -GET /livez, -GET /readyz, -GET /metrics*, -GET /version, -GET /_status, -GET /job-status, -GET /dlq-status, -GET /ui/*" +
		", GET /ui/style.css, GET /ui/icon.svg, GET /ui/script.js"
	undated = untagged + ", -GET /, -GET /docs*, -GET /openapi.json, -GET /ui/*"
)

// plainHeaders are the headers of requests that the table of routes does not name: those of HTTP itself.
var plainHeaders = []word{
	{"If-None-Match", "GET *" + untagged + ", " + conditional, "entity tags: of a GET 304 if one of them is current; of a PUT * creates and never changes", aText},
	{"If-Modified-Since", "GET *" + undated, "304 where a date proves that nothing changed", aText},
	{"If-Match", conditional, "entity tags: 412 unless one of them is current", aText},
	{"If-Unmodified-Since", conditional, "412 if the resource was changed later", aText},
	{"Content-Encoding", writes + ", POST */response", "codings of the body", aText},
}

const stored = "POST */broadcast, POST */request"

// answerHeaders are the headers of successful answers with some statuses, beside X-Request-ID.
var answerHeaders = []answerWord{
	{"200 201 304", word{"ETag", "GET *" + untagged + ", PUT *, " + moved, "entity tag of the resource", aText}},
	{"200 201 304", word{"Last-Modified", "GET *" + undated + ", GET */bad-rows, GET */queued-jobs, PUT *, " + moved, "time of the last change", aText}},
	{"200 201 202", word{"Location", "POST */broadcast", "where the message is, or its receipt", aText}},
	{"200 202", word{"Location", "POST */request", "where the responses are", aText}},
	{"303", word{"Location", "GET /receipt/*", "where the message is", aText}},
	{"201 202", word{"Location", "POST */bulk, POST */replay, POST */redrive, POST */sqs-key, POST /tokens, PUT *", "where the resource is", aText}},
	{"303", word{"Location", "GET /, POST /ui/*, GET /ui/*", "where to go", aText}},
	{"*", word{"X-Broker-Ack", stored + ", POST */batch, POST */bulk, GET /receipt/*, PUT */scheduled-message/*", "what the success promises: durable, journal or replicated", aText}},
	{"*", word{"X-Broker-Recipients", "POST */broadcast", "0: the message is stored and has no job", aText}},
	{"*", word{"Idempotent-Replayed", stored, "true: an earlier request stored the message", aText}},
	{"*", word{"Preference-Applied", "POST */request", "how long the request waited for a response", aText}},
	{"200", word{"X-Broker-Response-Status", "POST */request", "status of the response", aText}},
	{"200", word{"X-Broker-Response-Truncated", "POST */request", "true: the response was longer than what is kept", aText}},
	{"200", word{"X-Broker-Consumer-ID", "POST */request", "who responded", aText}},
	{"200", word{"Content-Language", "POST */request", "that of the response, as every header of it that the broker keeps", aText}},
	{"*", word{"X-Broker-Claimed", "POST */job/{job}", "whether the job is the caller's", aText}},
	{"*", word{"X-Broker-Lease", "POST */job/{job}", "the lease", aText}},
	{"*", word{"X-Broker-Replay", "POST */job/{job}", "ID of the replay that repeats the job", aText}},
	{"*", word{"X-Broker-Backlog", "POST */claim", "jobs that are due and left; absent where that is not certain", aText}},
	{"*", word{"X-Broker-Why", "POST */claim, GET */queued-jobs", "as Why of the body", aText}},
	{"200 202", word{"Retry-After", "POST */claim, GET */queued-jobs, GET */responses, POST */request, GET /receipt/*", "seconds to wait", aText}},
	{"*", word{"Vary", "GET /, GET /openapi.json, GET /docs*, GET /ui/style.css, GET /ui/icon.svg, GET /ui/script.js", "the headers of the request that the answer depends on", aText}},
	{"200", word{"X-Amzn-RequestId", "POST /, POST /sqs/*", "that of X-Request-ID, as clients of SQS look for it", aText}},
	{"200", word{"Content-Disposition", "GET /ui/dlq/export, GET */raw, POST /ui/channel/{channel}/message/{message}/action/{action}", "the name of the file", aText}},
}

// An answerWord is a header of the answers with some statuses, * for all.
type answerWord struct {
	statuses string
	word
}

// moved are the actions that answer the resource as it is then.
const moved = "POST */pause, POST */resume, POST */revive, POST */cancel"

// pages are the routes of the dashboard that need a session: without one they lead to the login.
const pages = "GET /ui/*, POST /ui/channel/{channel}/message/{message}/action/{action}, -GET /ui/login, -GET /ui/portal, -GET /ui/style.css, -GET /ui/icon.svg, -GET /ui/script.js"

// pageFailures are the statuses of pages, and of SQS, that say what is wrong where no code has them.
var pageFailures = []struct {
	routes string
	status int
}{
	{"GET /ui/*/action/{action}, POST /ui/*/action/{action}, GET /ui/publish, POST /ui/publish", 405}, // of a dashboard for reading
	{"POST /ui/*/action/{action}", 409}, // the number has changed
	{"POST /ui/login", 429},
	{"POST /, POST /sqs/*", 405},
}

// bodies are the media types of requests that a route takes beside the one of package apitype.
var bodies = []struct {
	routes, media string
	schema        object
}{
	{"POST */batch", "application/cloudevents-batch+json", object{}},
	{"POST */bulk", "text/csv", object{}},
	{"POST */bulk", "application/x-ndjson", object{}},
	{"POST */bulk", "multipart/form-data", object{{"type", "object"}, {"properties", object{
		{"options", object{{"type", "string"}, {"description", "a BulkRequest without FileURL, as JSON"}}},
		{"file", object{{"type", "string"}, {"description", "the file, after the options"}}}}}}},
}

// A codesOf names errors that some routes may answer. An error that no line names may come from every route.
type codesOf struct{ routes, codes string }

const (
	puts    = "PUT /producer/{producer}, PUT /channel/{channel}, PUT /group/{group}, PUT */consumer/{consumer}"
	writes  = "POST */broadcast, POST */batch, POST */request, POST */bulk, PUT */scheduled-message/{scheduled}"
	workers = "POST */claim, GET */queued-jobs, POST */consumer/{consumer}/jobs, POST */consumer/{consumer}/job/{job}"
	moves   = "POST */consumer/{consumer}/jobs, POST */consumer/{consumer}/job/{job}"
	letters = "*/dlq, */dlq/*, */redrive*"
)

var routesOfCodes = []codesOf{
	{puts, "callback_refused callback_required invalid_callback invalid_name invalid_policy " +
		"invalid_protocol invalid_publish_secret invalid_since invalid_token invalid_type since_fixed " +
		"channel_full"},
	{conditional, "invalid_date invalid_etag precondition_failed"},
	{"PUT *, POST *, DELETE *", "reserved_name"},
	{"PUT *, POST *", "duplicate_field invalid_form invalid_json unknown_field unsupported_media_type " +
		"invalid_body"},
	{"GET *", "invalid_size unknown_first invalid_query invalid_date invalid_status invalid_cursor"},
	{"POST */claim, POST */purge", "invalid_query"},
	{writes, "invalid_cloudevent invalid_consumers invalid_content_encoding invalid_content_type " +
		"invalid_idempotency_key invalid_message_id invalid_metadata_headers invalid_ordering_key invalid_payload " +
		"invalid_priority invalid_recurrence invalid_schedule invalid_task invalid_ttl rejected unknown_consumer " +
		"signature_required signature_mismatch signature_unsupported system_channel duplicate_message_id " +
		"message_id_conflict idempotency_key_reused producer_full schedule_too_soon channel_paused group_paused " +
		"publish_rate_exceeded not_replicated " +
		"journal_full journal_failed"},
	{puts + ", " + letters, "rejected"},
	{"POST */response", "invalid_content_encoding invalid_content_type consumer_ambiguous response_exists responses_off"},
	{"POST */batch", "invalid_line answers_unread http_version_not_supported"},
	{"POST */request, PUT */scheduled-message/{scheduled}", "invalid_request"},
	{"POST */request", "invalid_prefer no_responder response_failed response_late"},
	{"POST */bulk", "invalid_columns invalid_file_url invalid_format invalid_rate invalid_template invalid_line"},
	{"*/bulk/{bulk}*", "bulk_not_found bulk_over"},
	{"*/scheduled-message/{scheduled}*", "scheduled_message_not_found already_dispatched"},
	{"POST */replay, POST */dlq/redrive", "invalid_rate"},
	{"POST */replay", "invalid_replay replay_running"},
	{"*/replay/*", "replay_not_found replay_ended"},
	{letters, "invalid_date invalid_redrive invalid_reason invalid_fingerprint redrive_not_found redrive_ended too_many_redrives"},
	{"POST */dlq", "requeue_token_mismatch"},
	{"*/producer/{producer}/dlq", "no_replies"},
	{workers, "consumer_not_pull consumer_held invalid_limit invalid_timeout invalid_wait invalid_cursor"},
	{"GET */responses", "invalid_until invalid_wait"},
	{moves, "invalid_delay invalid_failed invalid_next_state invalid_reason invalid_response invalid_transition " +
		"job_twice lease_required too_many_updates key_blocked lease_lost rate_limited too_many_in_flight " +
		"job_of_other_consumer"},
	{"*/requeue-dead-job, */re-trigger, DELETE */job/{job}", "job_not_dead"},
	{"*/re-trigger", "job_filtered job_of_other_consumer"},
	{"DELETE /channel/{channel}", "channel_has_consumers"},
	{"PUT /channel/{channel}", "group_full"},
	{"DELETE /group/{group}", "group_has_channels"},
	{"*/group/{group}*, PUT /channel/{channel}, GET /channels", "group_not_found"},
	{"DELETE *, POST */dlq/delete", "method_not_allowed"}, // without BROKER_ALLOW_DELETE
	{"POST */test", "consumer_pull"},
	{"POST */portal-link", "invalid_ttl"},
	{"POST */sqs-key", "too_many_sqs_keys"},
	{"POST /tokens", "invalid_token_name invalid_scope invalid_expires too_many_tokens"},
	{"DELETE /tokens/{token}", "token_not_found"},
	{"POST */rotate-token", "invalid_overlap"},
	{"GET */reconcile", "books_busy"},
	{"*/revive/{link}, GET /ui/*, POST /ui/*", "link_invalid"},
	{"GET /receipt/*", "receipt_not_found not_stored not_replicated"},
	{"GET /metrics*", "no_metrics"},
	{"GET /readyz", "store_not_writable store_unreachable"},
	{"*/channel/{channel}*, GET /metrics/consumers, GET /history, GET /consumers, GET /job-status, GET /dlq-status", "channel_not_found"},
	{"*/consumer/*, */message/*, GET */messages, GET /history, " + writes, "consumer_not_found"},
	{"*/producer/*, */channel/*", "producer_not_found"},
	{"*/message/*, */job/*, */receipt/*", "message_not_found"},
	{"*/job/*, */jobs, */message/*", "job_not_found"},
}

// examples are examples of bodies, by the name of their type and "request" or "answer".
var examples = map[string]string{
	"ProducerForm request":   `{"name":"The shop","token":"shop-secret"}`,
	"ChannelForm request":    `{"name":"Orders","token":"orders-secret"}`,
	"GroupForm request":      `{"maxChannels":"20","publishRate":"1000/1s"}`,
	"ConsumerForm request":   `{"callbackUrl":"https://billing.example/orders","token":"billing-secret","maxRetries":"8"}`,
	"RedriveForm request":    `{"requeue":"billing-secret"}`,
	"BatchLine request":      `{"MessageID":"order-1","Payload":"{\"order\":1}","ContentType":"application/json"}`,
	"BatchResult answer":     `{"Status":201,"MessageID":"order-1","Location":"/channel/orders/message/order-1"}`,
	"BulkRequest request":    `{"FileURL":"https://files.example/people.csv","Format":"csv","Rate":"2000/1s"}`,
	"MoveRequest request":    `{"NextState":"INFLIGHT","IncrementalTimeout":10}`,
	"MoveResult answer":      `{"Claimed":true,"Lease":"378vc4icccadf114.1","Attempt":1,"Deadline":"2026-01-31T15:05:05.1Z"}`,
	"ClaimRequest request":   `{"Limit":100,"Wait":"20s","Timeout":60}`,
	"ClaimedJobs answer":     `{"Result":[{"ID":"06gvk862do000000000g","Lease":"dhq3u6jc1is07cbb.1","Attempt":1,"Deadline":"2026-01-31T15:05:05.1Z","Priority":7,"Message":{"MessageID":"order-1","ProducerID":"shop","Payload":"{\"order\":1}","Headers":{},"ContentType":"application/json"}}]}`,
	"UpdatesRequest request": `{"Updates":[{"ID":"06gvk862do000000000g","Lease":"dhq3u6jc1is07cbb.1","NextState":"DELIVERED"}]}`,
	"UpdateResults answer":   `{"Result":[{"ID":"06gvk862do000000000g","Status":202}]}`,
	"QueuedJobs answer":      `{"Result":[{"ID":"06gvk862do000000000g","Priority":7,"IncrementalTimeout":0,"Attempts":0,"Message":{"MessageID":"order-1","ProducerID":"shop","Payload":"{\"order\":1}","Headers":{"X-Order-Kind":"express"},"ContentType":"application/json"}}],"Pages":{}}`,
	"ReplayRequest request":  `{"From":"2026-01-31T00:00:00Z","To":"2026-01-31T12:00:00Z","Rate":"100/1s"}`,
	"RedriveRequest request": `{"Fingerprint":"81382dd5798bbe48","Canary":true}`,
	"DeadSelection request":  `{"Fingerprint":"81382dd5798bbe48"}`,
	"RedriveEstimate answer": `{"Matched":4821}`,
	"PortalRequest request":  `{"TTL":"4h"}`,
	"TokenRequest request":   `{"Name":"nightly job","Scopes":["channel:orders"],"Expires":"24h"}`,
	"RotateForm request":     `{"overlap":"24h"}`,
}
