// Package lifecycle has the table of what belongs to a resource: what happens to it when the resource
// changes or is deleted. docs/explain/lifecycle.md shows the table, and a test of cmd/broker makes each
// change and checks what the table promises.
package lifecycle

// A Row is one thing that depends on a resource.
type Row struct {
	Event   string // of the resource
	Part    string // what depends on it
	Promise string // what happens to it
}

// Key names a row.
func (r Row) Key() string { return r.Event + ": " + r.Part }

// Table is every row, by resource.
var Table = []Row{
	{"a producer is deleted", "schedules", "end: none of their messages is sent after the 204, GET is 404, their IDs " +
		"are free within seconds; a producer that is created under the ID has none of them"},
	{"a producer is deleted", "bulks", "are `FAILED`, those that are fetched or paused as well; rows that became " +
		"messages stay"},
	{"a producer is deleted", "messages and their jobs", "stay and are delivered, and name the producer"},
	{"a producer is deleted", "replies on their way", "end: its channel `~replies-N` goes with its consumer, nothing " +
		"more is posted, and the exchanges are `FAILED`"},
	{"a producer is deleted", "responses that wait for a `replyUrl`", "are `FAILED`"},
	{"a producer is deleted", "status events", "are dropped, and batches on their way end with its channel " +
		"`~replies-N`"},
	{"a producer is deleted", "token, secrets, settings", "are forgotten: 401 `producer_not_found`; a producer that is " +
		"created under the ID begins without"},
	{"a producer is deleted", "`Idempotency-Key` and message IDs with `identity=producer`",
		"are not those of a producer that is created under the ID"},
	{"a producer changes: `replyUrl`", "replies on their way", "go to the new URL, and `GONE` or `DEAD` of the " +
		"consumer `sender` end; nothing more goes to the former URL"},
	{"a producer changes: `replyUrl`", "status events", "go to the new URL, also batches on their way"},
	{"a producer changes: `replyUrl` is removed", "replies on their way",
		"wait, and nothing is posted; `sender` is a pull consumer until there is a URL"},
	{"a producer changes: `replyUrl` is removed", "status events",
		"go to `~status`; batches on their way wait as replies do"},
	{"a producer changes: `replyUrl` is removed", "responses", "wait until there is a URL, at most for `responseTTL` " +
		"after they came, or else for `BROKER_RETENTION`; then they are `FAILED`. The wait costs nothing"},
	{"a producer changes: `replyUrl` is set", "responses that wait", "are sent within seconds"},
	{"a producer changes: `signingSecret`", "replies on their way",
		"are signed with the new secret from the next attempt on, and without one when it is removed"},
	{"a producer changes: `statusEvents`", "status events", "those that were stored before are still sent; none is " +
		"stored any more"},
	{"a channel is deleted", "schedules", "are removed"},
	{"a channel is deleted", "bulks", "are `FAILED`"},
	{"a channel is deleted", "messages, jobs, responses", "are removed soon; a channel that is created under the ID " +
		"has none of them"},
	{"a channel is deleted", "the alarm of its silence", "ends, and the event `.over` says that it was deleted; a " +
		"channel that is created under the ID expects nothing"},
	{"a channel is deleted", "access keys of SQS clients", "end; a channel that is created under the ID has none of them"},
	{"a channel is deleted", "scopes of API tokens that name it",
		"end; a channel that is created under the ID is not opened by them"},
	{"a channel is deleted", "dead letters that a consumer forwards to it",
		"stay with their consumer, until there is a channel of that ID"},
	{"a consumer is deleted", "open jobs", "are `DEAD` with `consumer_deleted`; a request in flight finishes, and its " +
		"outcome counts"},
	{"a consumer is deleted", "leases of workers", "are lost: 401"},
	{"a consumer is deleted", "scopes of API tokens that name it",
		"end; a consumer that is created under the ID is not opened by them"},
	{"a consumer is deleted", "replays", "are cancelled"},
	{"a consumer is deleted", "results that are awaited", "are awaited no longer; a client that waits for responses is " +
		"answered"},
	{"a consumer is deleted", "responses that it gave", "still go back to their producers"},
	{"a consumer is deleted", "state, failures, pace, dead letters, books",
		"are forgotten; a consumer that is created under the ID has none of them"},
	{"a consumer is deleted", "history", "is 404, and is removed by its age; that of the channel and of the whole " +
		"stays. A consumer that is created under the ID has none"},
	{"a consumer is deleted", "alarms that are open", "end, and the event `.over` says that it was deleted"},
	{"a consumer changes: `callbackUrl`", "`GONE` and `DEAD`", "end, and the consumer is `ACTIVE`: they were about the " +
		"former URL. A pause stays"},
	{"a consumer changes: `callbackUrl`", "failures of the tombstone, pace", "begin anew"},
	{"a consumer changes: `callbackUrl`", "claimed jobs whose request has not begun",
		"go to the new URL; a 410 of the former one changes nothing"},
	{"a consumer changes: `type`", "waiting jobs", "go the new way; `GONE` and `DEAD` end"},
	{"a consumer changes: `authorization`", "the access token", "is dropped: the next attempt gets one from the new " +
		"endpoint, with the new credentials"},
	{"a consumer changes: `responses=off`", "results that are awaited",
		"are `FAILED` instead of the next poll, and at the deadline where none is polled"},
	{"a schedule is changed", "its next message", "is sent once, as the last change has it; nothing of what it was is " +
		"sent after the answer"},
	{"a schedule is deleted", "its next messages, its message ID", "are not sent, and the ID is free; what it sent stays"},
	{"a bulk is cancelled", "its next rows, its body", "become no messages, and the body is removed; what it published " +
		"stays"},
	{"a replay is cancelled", "its jobs", "end; the outcomes of the consumer stay as they are"},
	{"a consumer of `~alerts` or `~status` is deleted", "its jobs",
		"as of any consumer; the channel itself is always there"},
}
