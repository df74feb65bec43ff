package apitype

import "slices"

// The media types of bodies.
const (
	MediaJSON        = "application/json"
	MediaForm        = "application/x-www-form-urlencoded"
	MediaLines       = "application/x-ndjson"         // one JSON value a line
	MediaProblem     = "application/problem+json"     // a Problem
	MediaMetrics     = "text/plain"                   // the text format of Prometheus
	MediaOpenMetrics = "application/openmetrics-text" // the same with exemplars
	MediaText        = "text/plain"                   // a payload as it was sent
	MediaBytes       = "application/octet-stream"     // the same, where it is no text
	MediaHTML        = "text/html"                    // a page for people
	MediaCSS         = "text/css"                     // a style sheet of pages
	MediaScript      = "text/javascript"              // the script of pages
	MediaEvents      = "text/event-stream"            // a page that is brought up to date
	MediaSVG         = "image/svg+xml"                // an image of pages
	MediaAny         = "*/*"                          // any bytes
)

// A Body is the body of a request or an answer.
type Body struct {
	Media string // "": there is no body
	Value any    // the zero value of its struct, or of the struct of one line; nil: bytes
}

// An Answer is a successful answer, or the 303 that leads to one.
type Answer struct {
	Status int
	Body
}

// A Route is the request and the answers of one route. Every other answer is a Problem, or 304
// without body. A GET route also serves HEAD.
type Route struct {
	Method  string
	Path    string // parameters in braces
	Request Body
	Answers []Answer
}

// Routes returns all routes of the API, for generators and tests.
func Routes() []Route { return slices.Clone(routes) }

var routes = []Route{
	{"PUT", "/producer/{producer}", form(ProducerForm{}), put(Producer{})},
	{"GET", "/producer/{producer}", none, ok(Producer{})},
	{"GET", "/producers", none, ok(List{})},
	{"PUT", "/channel/{channel}", form(ChannelForm{}), put(Channel{})},
	{"GET", "/channel/{channel}", none, ok(Channel{})},
	{"GET", "/channels", none, ok(List{})},
	{"PUT", "/group/{group}", form(GroupForm{}), put(Group{})},
	{"GET", "/group/{group}", none, ok(Group{})},
	{"GET", "/groups", none, ok(List{})},
	{"POST", "/group/{group}/pause", none, ok(Group{})},
	{"POST", "/group/{group}/resume", none, ok(Group{})},
	{"PUT", "/channel/{channel}/consumer/{consumer}", form(ConsumerForm{}), put(Consumer{})},
	{"GET", "/channel/{channel}/consumer/{consumer}", none, ok(Consumer{})},
	{"GET", "/channel/{channel}/consumers", none, ok(List{})},
	{"GET", "/consumers", none, ok(ConsumerList{})},
	{"GET", "/audit", none, ok(AuditList{})},
	{"GET", "/settings", none, ok(Settings{})},
	{"GET", "/history", none, ok(HistoryRange{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/jobs", none, ok(JobList{})},
	{"POST", "/channel/{channel}/pause", none, ok(Channel{})},
	{"POST", "/channel/{channel}/resume", none, ok(Channel{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/pause", none, ok(Consumer{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/resume", none, ok(Consumer{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/revive", none, ok(Consumer{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/retry", none, ok(Retried{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/test", none, ok(ConsumerTest{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/purge", none, ok(Purged{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/portal-link", Body{MediaJSON, PortalRequest{}}, ok(PortalLink{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/revive/{link}", none, []Answer{{200, Body{MediaHTML, nil}}}},
	{"POST", "/channel/{channel}/consumer/{consumer}/revive/{link}", none, []Answer{{200, Body{MediaHTML, nil}}}},

	{"POST", "/channel/{channel}/broadcast", Body{MediaAny, nil}, []Answer{{201, none}, {202, none},
		{200, Body{MediaLines, BatchResult{}}}}}, // 200: of several CloudEvents, or a repeat, which has no body
	{"GET", "/receipt/{receipt}", none, []Answer{{202, none}, {303, none}}},
	{"POST", "/channel/{channel}/batch", Body{MediaLines, BatchLine{}}, []Answer{{200, Body{MediaLines, BatchResult{}}}}},
	{"GET", "/channel/{channel}/messages", none, ok(MessageList{})},
	{"GET", "/channel/{channel}/message/{message}", none, ok(Message{})},
	{"GET", "/channel/{channel}/message/{message}/timeline", none, ok(Timeline{})},
	{"POST", "/channel/{channel}/request", Body{MediaAny, nil}, []Answer{{200, Body{MediaAny, nil}}, {202, none}}},
	{"GET", "/channel/{channel}/message/{message}/responses", none, ok(Responses{})},
	{"POST", "/channel/{channel}/message/{message}/response", Body{MediaAny, nil}, accepted},
	{"GET", "/producer/{producer}/dlq", none, ok(DeadLetters{})},
	{"POST", "/producer/{producer}/dlq", form(RedriveForm{}), accepted},
	{"GET", "/channel/{channel}/messages-status", none, ok(MessageCounts{})},
	{"GET", "/channel/{channel}/reconcile", none, ok(Reconciliation{})},
	{"GET", "/channel/{channel}/scheduled-messages", none, ok(ScheduledList{})},
	{"GET", "/channel/{channel}/scheduled-message/{scheduled}", none, ok(ScheduledMessage{})},
	{"PUT", "/channel/{channel}/scheduled-message/{scheduled}", Body{MediaAny, nil}, append(ok(ScheduledMessage{}),
		Answer{204, none})},
	{"DELETE", "/channel/{channel}/scheduled-message/{scheduled}", none, gone},
	{"POST", "/channel/{channel}/bulk", Body{MediaJSON, BulkRequest{}}, accepted},
	{"GET", "/channel/{channel}/bulks", none, ok(List{})},
	{"GET", "/channel/{channel}/bulk/{bulk}", none, ok(Bulk{})},
	{"GET", "/channel/{channel}/bulk/{bulk}/bad-rows", none, ok(BadRows{})},
	{"POST", "/channel/{channel}/bulk/{bulk}/pause", none, ok(Bulk{})},
	{"POST", "/channel/{channel}/bulk/{bulk}/resume", none, ok(Bulk{})},
	{"POST", "/channel/{channel}/bulk/{bulk}/cancel", none, ok(Bulk{})},
	{"POST", "/channel/{channel}/message/{message}/re-trigger", none, accepted},
	{"POST", "/channel/{channel}/message/{message}/job/{job}/re-trigger", none, accepted},

	{"GET", "/channel/{channel}/consumer/{consumer}/why", none, ok(Why{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/job/{job}/why", none, ok(Why{})},
	{"GET", "/channel/{channel}/message/{message}/why", none, ok(Why{})},
	{"GET", "/channel/{channel}/scheduled-message/{scheduled}/why", none, ok(Why{})},

	{"GET", "/channel/{channel}/consumer/{consumer}/queued-jobs", none, ok(QueuedJobs{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/job/{job}", Body{MediaJSON, MoveRequest{}},
		[]Answer{{202, Body{MediaJSON, MoveResult{}}}}},
	{"POST", "/channel/{channel}/consumer/{consumer}/claim", Body{MediaJSON, ClaimRequest{}}, ok(ClaimedJobs{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/jobs", Body{MediaJSON, UpdatesRequest{}}, ok(UpdateResults{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/workers", none, ok(Workers{})},

	{"GET", "/channel/{channel}/consumer/{consumer}/job/{job}", none, ok(JobDetail{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/job/{job}/timeline", none, ok(Timeline{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/replay", Body{MediaJSON, ReplayRequest{}},
		[]Answer{{202, Body{MediaJSON, Replay{}}}, {200, Body{MediaJSON, ReplayEstimate{}}}}},
	{"GET", "/channel/{channel}/consumer/{consumer}/replays", none, ok(ReplayList{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/replay/{replay}", none, ok(Replay{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/replay/{replay}/dlq", none, ok(DeadLetters{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/replay/{replay}/pause", none, ok(Replay{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/replay/{replay}/resume", none, ok(Replay{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/replay/{replay}/cancel", none, ok(Replay{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/dlq", none, ok(DeadLetters{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/dlq/groups", none, ok(DeadGroups{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/dlq", form(RedriveForm{}), accepted},
	{"POST", "/channel/{channel}/consumer/{consumer}/dlq/redrive", Body{MediaJSON, RedriveRequest{}},
		[]Answer{{202, Body{MediaJSON, Redrive{}}}, {200, Body{MediaJSON, RedriveEstimate{}}}}},
	{"POST", "/channel/{channel}/consumer/{consumer}/dlq/delete", Body{MediaJSON, DeadSelection{}}, ok(DeletedLetters{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/redrives", none, ok(RedriveList{})},
	{"GET", "/channel/{channel}/consumer/{consumer}/redrive/{redrive}", none, ok(Redrive{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/pause", none, ok(Redrive{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/resume", none, ok(Redrive{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/cancel", none, ok(Redrive{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/job/{job}/requeue-dead-job", none, accepted},

	{"DELETE", "/producer/{producer}", none, gone},
	{"DELETE", "/channel/{channel}", none, gone},
	{"DELETE", "/group/{group}", none, gone},
	{"DELETE", "/channel/{channel}/consumer/{consumer}", none, gone},
	{"DELETE", "/channel/{channel}/consumer/{consumer}/dlq", none, gone},
	{"DELETE", "/channel/{channel}/consumer/{consumer}/job/{job}", none, gone},

	{"POST", "/channel/{channel}/sqs-key", none, []Answer{{201, Body{MediaJSON, SQSKey{}}}}},
	{"GET", "/channel/{channel}/sqs-key", none, ok(SQSKeyList{})},
	{"DELETE", "/channel/{channel}/sqs-key", none, gone},
	{"DELETE", "/channel/{channel}/sqs-key/{key}", none, gone},
	{"POST", "/tokens", Body{MediaJSON, TokenRequest{}}, []Answer{{201, Body{MediaJSON, NewToken{}}}}},
	{"GET", "/tokens", none, ok(TokenList{})},
	{"DELETE", "/tokens/{token}", none, gone},
	{"POST", "/producer/{producer}/rotate-token", Body{MediaForm, RotateForm{}}, ok(RotatedToken{})},
	{"POST", "/channel/{channel}/rotate-token", Body{MediaForm, RotateForm{}}, ok(RotatedToken{})},
	{"POST", "/channel/{channel}/consumer/{consumer}/rotate-token", Body{MediaForm, RotateForm{}}, ok(RotatedToken{})},
	{"POST", "/", Body{MediaAny, nil}, []Answer{{200, Body{MediaAny, nil}}}},
	{"POST", "/sqs/{channel}/{consumer}", Body{MediaAny, nil}, []Answer{{200, Body{MediaAny, nil}}}},

	{"GET", "/ui/", none, livePage},
	{"GET", "/ui/channels", none, livePage},
	{"GET", "/ui/channel/{channel}", none, livePage},
	{"GET", "/ui/dlq", none, livePage},
	{"GET", "/ui/dlq/export", none, []Answer{{200, Body{MediaLines, Job{}}}}},
	{"GET", "/ui/redrives", none, livePage},
	{"GET", "/ui/scheduled", none, livePage},
	{"GET", "/ui/bulks", none, livePage},
	{"GET", "/ui/replays", none, livePage},
	{"GET", "/ui/brokers", none, livePage},
	{"GET", "/ui/groups", none, livePage},
	{"GET", "/ui/group/{group}/action/{action}", none, page},
	{"POST", "/ui/group/{group}/action/{action}", form(ActionForm{}), []Answer{{303, none}}},
	{"GET", "/ui/channel/{channel}/message/{message}/raw", none,
		[]Answer{{200, Body{MediaText, nil}}, {200, Body{MediaBytes, nil}}}},
	{"GET", "/ui/bench", none, page},
	{"GET", "/ui/bench/report", none, page},
	{"GET", "/ui/publish", none, page},
	{"POST", "/ui/publish", form(PublishForm{}),
		[]Answer{{303, none}, {200, Body{MediaHTML, nil}}}}, // 200: it is in the journal
	{"GET", "/ui/search", none, page},
	{"GET", "/ui/consumers", none, livePage},
	{"GET", "/ui/channel/{channel}/consumer/{consumer}", none, livePage},
	{"GET", "/ui/channel/{channel}/message/{message}", none, livePage},
	{"GET", "/ui/channel/{channel}/consumer/{consumer}/job/{job}", none, livePage},
	{"GET", "/ui/channel/{channel}/action/{action}", none, page},
	{"POST", "/ui/channel/{channel}/action/{action}", form(ActionForm{}), []Answer{{303, none}}},
	{"GET", "/ui/channel/{channel}/message/{message}/action/{action}", none, page},
	{"POST", "/ui/channel/{channel}/message/{message}/action/{action}", form(ActionForm{}),
		[]Answer{{200, Body{MediaHTML, nil}}, {200, Body{MediaText, nil}}, {200, Body{MediaBytes, nil}}}},
	{"GET", "/ui/channel/{channel}/consumer/{consumer}/action/{action}", none, page},
	{"POST", "/ui/channel/{channel}/consumer/{consumer}/action/{action}", form(ActionForm{}),
		[]Answer{{303, none}, {200, Body{MediaHTML, nil}}}}, // by what there is to tell
	{"GET", "/ui/portal", none, []Answer{{303, none}}},
	{"GET", "/ui/login", none, page},
	{"POST", "/ui/login", form(LoginForm{}), []Answer{{303, none}}},
	{"POST", "/ui/logout", none, []Answer{{303, none}}},
	{"GET", "/ui/style.css", none, []Answer{{200, Body{MediaCSS, nil}}}},
	{"GET", "/ui/icon.svg", none, []Answer{{200, Body{MediaSVG, nil}}}},
	{"GET", "/ui/script.js", none, []Answer{{200, Body{MediaScript, nil}}}},

	{"GET", "/", none, []Answer{{200, Body{MediaJSON, Root{}}}, {200, Body{MediaHTML, nil}}, {303, none}}}, // by Accept
	{"GET", "/livez", none, ok(Health{})},
	{"GET", "/readyz", none, ok(Health{})},
	{"GET", "/metrics", none, []Answer{{200, Body{MediaMetrics, nil}}, {200, Body{MediaOpenMetrics, nil}}}},
	{"GET", "/metrics/consumers", none, []Answer{{200, Body{MediaMetrics, nil}}}},
	{"GET", "/version", none, ok(Version{})},
	{"GET", "/openapi.json", none, []Answer{{200, Body{MediaJSON, nil}}}}, // OpenAPI says what it has
	{"GET", "/docs", none, page},
	{"GET", "/docs/try", none, page},
	{"GET", "/docs/try.js", none, []Answer{{200, Body{MediaScript, nil}}}},
	{"GET", "/docs/errors", none, page},
	{"GET", "/_status", none, ok(Status{})},
	{"GET", "/job-status", none, ok(JobStatus{})},
	{"GET", "/dlq-status", none, ok(DLQStatus{})},
}

var (
	none     = Body{}
	accepted = []Answer{{202, none}}
	gone     = []Answer{{204, none}}
	page     = []Answer{{200, Body{MediaHTML, nil}}}
	livePage = []Answer{{200, Body{MediaHTML, nil}}, {200, Body{MediaEvents, nil}}} // by Accept
)

func form(v any) Body    { return Body{MediaForm, v} }
func ok(v any) []Answer  { return []Answer{{200, Body{MediaJSON, v}}} }
func put(v any) []Answer { return []Answer{{201, Body{MediaJSON, v}}, {200, Body{MediaJSON, v}}} }
