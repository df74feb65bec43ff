package api

import (
	"context"
	"slices"
	"strings"
	"unsafe"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/openapi"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// An Access is the kind of token that a route requires; the package comment has the rules.
type Access string

// The kinds of access.
const (
	AccessOps        Access = "operations"
	AccessManagement Access = "management"
	AccessOwn        Access = "own"
	AccessPublished  Access = "published"
	AccessJob        Access = "job"
	AccessConsumer   Access = "consumer"
	AccessForm       Access = "form"
	AccessAdmin      Access = "admin"
	AccessRetrigger  Access = "re-trigger"
	AccessData       Access = "data"
	AccessLink       Access = "link"
	AccessReceiver   Access = "receiver"
	AccessSender     Access = "sender"
	AccessSQS        Access = "sqs"
	AccessTokens     Access = "tokens"
	AccessUI         Access = "dashboard"
)

// A Route is one line of the route table.
type Route struct {
	Method  string
	Path    string // parameters in braces
	Access  Access
	Summary string
	Body    int // largest body in bytes; 0: the route takes none; OwnBody: the handler reads it

	Headers []string // request headers of the broker that mean something here, besides those with tokens
	Query   []string // parameters of the query
	Audit   string   // its action in the audit log; "": a test has the reason

	serve  func(*API, context.Context, *fasthttp.RequestCtx) error // control plane
	always bool                                                    // of a DELETE: it exists without Options.AllowDelete

	data func(DataPlane, *fasthttp.RequestCtx, intake.Limit) // data plane
	own  func(*API, *fasthttp.RequestCtx) error              // checks the tokens and reads the body itself
}

// The limits of bodies, bytes.
const (
	OwnBody     = -1
	smallBody   = maxFormBytes // forms, and other bodies of that size
	formBody    = 512 << 10    // a form with a payload, whose encoding may triple it
	updatesBody = 1 << 20      // 500 updates with all their members
)

const (
	get  = fasthttp.MethodGet
	head = fasthttp.MethodHead
	put  = fasthttp.MethodPut
	post = fasthttp.MethodPost
	del  = fasthttp.MethodDelete
)

// table contains all routes. A GET route also serves HEAD: the server leaves the body out. The
// DELETE routes exist only with Options.AllowDelete, except that of a scheduled message.
var table = []Route{
	{Method: put, Path: "/producer/{producer}", Access: AccessManagement, Audit: "put producer", Summary: "create or update a producer", Body: smallBody, serve: (*API).putProducer},
	{Method: get, Path: "/producers", Access: AccessManagement, Summary: "list producers", Query: pageQueries, serve: (*API).listProducers},
	{Method: get, Path: "/producer/{producer}", Access: AccessManagement, Summary: "a producer", serve: (*API).getProducer},
	{Method: put, Path: "/channel/{channel}", Access: AccessManagement, Audit: "put channel", Summary: "create or update a channel", Body: smallBody, serve: (*API).putChannel},
	{Method: get, Path: "/channels", Access: AccessManagement, Summary: "list channels", Query: channelQueries, serve: (*API).listChannels},
	{Method: get, Path: "/channel/{channel}", Access: AccessManagement, Summary: "a channel", serve: (*API).getChannel},
	{Method: put, Path: "/group/{group}", Access: AccessManagement, Audit: "put group", Summary: "create or update a group of channels", Body: smallBody, serve: (*API).putGroup},
	{Method: get, Path: "/groups", Access: AccessManagement, Summary: "list groups", Query: pageQueries, serve: (*API).listGroups},
	{Method: get, Path: "/group/{group}", Access: AccessManagement, Summary: "a group", serve: (*API).getGroup},
	{Method: post, Path: "/group/{group}/pause", Access: AccessManagement, Audit: "pause group", Summary: "accept no messages in the channels of a group", Body: smallBody, serve: (*API).pauseGroup},
	{Method: post, Path: "/group/{group}/resume", Access: AccessManagement, Audit: "resume group", Summary: "accept messages again in the channels of a group", Body: smallBody, serve: (*API).resumeGroup},
	{Method: put, Path: "/channel/{channel}/consumer/{consumer}", Access: AccessManagement, Audit: "put consumer", Summary: "create or update a consumer", Body: smallBody, serve: (*API).putConsumer},
	{Method: get, Path: "/channel/{channel}/consumers", Access: AccessManagement, Summary: "list the consumers of a channel", Query: pageQueries, serve: (*API).listConsumers},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}", Access: AccessManagement, Summary: "a consumer", serve: (*API).getConsumer},
	{Method: get, Path: "/consumers", Access: AccessManagement, Summary: "list all consumers with their counts", Query: consumersQueries, serve: (*API).listAllConsumers},
	{Method: get, Path: "/audit", Access: AccessManagement, Summary: "the audit log: who changed what", Query: auditQueries, serve: (*API).getAudit},
	{Method: get, Path: "/settings", Access: AccessManagement, Summary: "the settings of the broker that answers", serve: (*API).getSettings},
	{Method: get, Path: "/history", Access: AccessManagement, Summary: "what was counted in a range of time, and what happened", Query: historyQueries, serve: (*API).getHistory},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/jobs", Access: AccessOwn, Summary: "list the jobs of a consumer", Query: jobQueries, serve: (*API).listJobs},
	{Method: post, Path: "/channel/{channel}/pause", Access: AccessManagement, Audit: "pause channel", Summary: "accept no messages", Body: smallBody, serve: (*API).pauseChannel},
	{Method: post, Path: "/channel/{channel}/resume", Access: AccessManagement, Audit: "resume channel", Summary: "accept messages again", Body: smallBody, serve: (*API).resumeChannel},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/pause", Access: AccessOwn, Audit: "pause consumer", Summary: "hold the jobs of a consumer", Body: smallBody, serve: (*API).pauseConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/resume", Access: AccessOwn, Audit: "resume consumer", Summary: "end a pause, or the hold after a 410", Body: smallBody, serve: (*API).resumeConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/revive", Access: AccessOwn, Audit: "revive consumer", Summary: "end the hold of a dead or gone consumer", Body: smallBody, serve: (*API).reviveConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/retry", Access: AccessOwn, Audit: "retry consumer", Summary: "make all delayed jobs of a consumer due now", Body: smallBody, serve: (*API).retryConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/test", Access: AccessOwn, Audit: "test consumer", Summary: "send a test message to a push consumer", Body: smallBody, serve: (*API).testConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/purge", Access: AccessManagement, Audit: "purge consumer", Summary: "end all queued jobs of a consumer", Body: smallBody, Query: purgeQueries, serve: (*API).purgeConsumer},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/portal-link", Access: AccessOwn, Audit: "make portal link", Summary: "a link to the pages of a consumer, for its owner", Body: smallBody, serve: (*API).portalLink},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/revive/{link}", Access: AccessLink, Summary: "the page of a revive link", serve: (*API).showLink},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/revive/{link}", Access: AccessLink, Audit: "revive consumer", Summary: "revive a consumer with a link", Body: smallBody, serve: (*API).useLink},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/replay", Access: AccessOwn, Audit: "start replay", Summary: "deliver messages of the past once more", Body: smallBody, serve: (*API).postReplay},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/replays", Access: AccessOwn, Summary: "list the replays of a consumer", Query: pageQueries, serve: (*API).listReplays},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/replay/{replay}", Access: AccessOwn, Summary: "a replay", serve: (*API).getReplay},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/replay/{replay}/dlq", Access: AccessOwn, Summary: "the dead jobs of a replay", Query: pageQueries, serve: (*API).getReplayDLQ},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/replay/{replay}/pause", Access: AccessOwn, Audit: "pause replay", Summary: "hold a replay", Body: smallBody, serve: (*API).pauseReplay},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/replay/{replay}/resume", Access: AccessOwn, Audit: "resume replay", Summary: "end the pause of a replay", Body: smallBody, serve: (*API).resumeReplay},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/replay/{replay}/cancel", Access: AccessOwn, Audit: "cancel replay", Summary: "end a replay for good", Body: smallBody, serve: (*API).cancelReplay},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: AccessOwn, Summary: "the dead letters of a consumer", Query: deadQueries, serve: (*API).getDLQ},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/dlq/groups", Access: AccessOwn, Summary: "the dead letters of a consumer by cause", serve: (*API).getDeadGroups},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/dlq/redrive", Access: AccessOwn, Audit: "start redrive", Summary: "redrive selected dead letters", Body: updatesBody, serve: (*API).postRedrive},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/dlq/delete", Access: AccessOwn, Audit: "delete dead letters", Summary: "delete selected dead letters", Body: updatesBody, serve: (*API).deleteLetters},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/redrives", Access: AccessOwn, Summary: "list the redrives of a consumer", Query: pageQueries, serve: (*API).listRedrives},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/redrive/{redrive}", Access: AccessOwn, Summary: "a redrive", serve: (*API).getRedrive},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/pause", Access: AccessOwn, Audit: "pause redrive", Summary: "hold a redrive", Body: smallBody, serve: (*API).pauseRedrive},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/resume", Access: AccessOwn, Audit: "resume redrive", Summary: "let a paused or stopped redrive go on", Body: smallBody, serve: (*API).resumeRedrive},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/redrive/{redrive}/cancel", Access: AccessOwn, Audit: "cancel redrive", Summary: "end a redrive for good", Body: smallBody, serve: (*API).cancelRedrive},
	{Method: post, Path: "/channel/{channel}/broadcast", Access: AccessData, Summary: "publish a message", Body: OwnBody, Headers: messageHeaders, data: broadcast},
	{Method: get, Path: "/receipt/{receipt}", Access: AccessLink, Summary: "what became of a message that was answered 202", data: receipt},
	{Method: get, Path: "/channel/{channel}/messages", Access: AccessManagement, Summary: "list the messages of a channel", Query: messageQueries, serve: (*API).listMessages},
	{Method: get, Path: "/channel/{channel}/message/{message}", Access: AccessPublished, Summary: "a message and its jobs", Query: pageQueries, serve: (*API).getMessage},
	{Method: get, Path: "/channel/{channel}/message/{message}/timeline", Access: AccessPublished, Summary: "what became of a message", Query: pageQueries, serve: (*API).messageTimeline},
	{Method: get, Path: "/channel/{channel}/message/{message}/responses", Access: AccessPublished, Summary: "the responses of the consumers to a message", Query: answersQueries, serve: (*API).getResponses},
	{Method: post, Path: "/channel/{channel}/message/{message}/response", Access: AccessReceiver, Summary: "post the response to a message", Body: maxPosted, serve: (*API).postResponse},
	{Method: post, Path: "/channel/{channel}/request", Access: AccessData, Summary: "publish a message and wait for its response", Body: OwnBody, Headers: requestHeaders, data: requestAndWait},
	{Method: get, Path: "/producer/{producer}/dlq", Access: AccessSender, Summary: "the replies and status batches that a producer did not take", Query: pageQueries, serve: (*API).getReplyDLQ},
	{Method: post, Path: "/producer/{producer}/dlq", Access: AccessForm, Audit: "redrive replies", Summary: "redrive the dead replies and status batches to a producer", Body: smallBody, serve: (*API).redriveReplies},
	{Method: get, Path: "/channel/{channel}/messages-status", Access: AccessManagement, Summary: "count the messages of a channel", serve: (*API).countMessages},
	{Method: get, Path: "/channel/{channel}/reconcile", Access: AccessManagement, Summary: "balance the books of the consumers", Query: booksQueries, serve: (*API).reconcile},
	{Method: get, Path: "/channel/{channel}/scheduled-messages", Access: AccessManagement, Summary: "list the scheduled messages of a channel", Query: scheduleQueries, serve: (*API).listScheduled},
	{Method: get, Path: "/channel/{channel}/scheduled-message/{scheduled}", Access: AccessPublished, Summary: "a scheduled message", serve: (*API).getScheduled},
	{Method: put, Path: "/channel/{channel}/scheduled-message/{scheduled}", Access: AccessPublished, Audit: "change scheduled message", Summary: "change time, recurrence or content of a scheduled message", Body: OwnBody, Headers: linesHeaders, own: (*API).changeScheduled},
	{Method: del, Path: "/channel/{channel}/scheduled-message/{scheduled}", Access: AccessPublished, Audit: "delete scheduled message", Summary: "delete a scheduled message before its time", serve: (*API).cancelScheduled, always: true},
	{Method: post, Path: "/channel/{channel}/bulk", Access: AccessData, Summary: "publish a body or file of any length", Body: OwnBody, Headers: bulkHeaders, own: (*API).acceptBulk},
	{Method: get, Path: "/channel/{channel}/bulks", Access: AccessPublished, Summary: "list the bulks of a channel", Query: pageQueries, serve: (*API).listBulks},
	{Method: get, Path: "/channel/{channel}/bulk/{bulk}", Access: AccessPublished, Summary: "a bulk and how far it is", serve: (*API).getBulk},
	{Method: get, Path: "/channel/{channel}/bulk/{bulk}/bad-rows", Access: AccessPublished, Summary: "all rows of a bulk that became no message", serve: (*API).getBadRows},
	{Method: post, Path: "/channel/{channel}/bulk/{bulk}/pause", Access: AccessPublished, Audit: "pause bulk", Summary: "pause a bulk", Body: smallBody, serve: (*API).pauseBulk},
	{Method: post, Path: "/channel/{channel}/bulk/{bulk}/resume", Access: AccessPublished, Audit: "resume bulk", Summary: "resume a bulk", Body: smallBody, serve: (*API).resumeBulk},
	{Method: post, Path: "/channel/{channel}/bulk/{bulk}/cancel", Access: AccessPublished, Audit: "cancel bulk", Summary: "cancel a bulk", Body: smallBody, serve: (*API).cancelBulk},
	{Method: post, Path: "/channel/{channel}/message/{message}/re-trigger", Access: AccessAdmin, Audit: "re-trigger message", Summary: "dispatch a message again", Body: smallBody, serve: (*API).retriggerMessage},
	{Method: post, Path: "/channel/{channel}/message/{message}/job/{job}/re-trigger", Access: AccessRetrigger, Audit: "re-trigger job", Summary: "make a job due now", Body: smallBody, serve: (*API).retriggerJob},

	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/why", Access: AccessManagement, Summary: "why the jobs of a consumer do not move", serve: (*API).consumerWhy},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/job/{job}/why", Access: AccessJob, Summary: "why a job does not move", serve: (*API).jobWhy},
	{Method: get, Path: "/channel/{channel}/message/{message}/why", Access: AccessPublished, Summary: "why the jobs of a message do not move", serve: (*API).messageWhy},
	{Method: get, Path: "/channel/{channel}/scheduled-message/{scheduled}/why", Access: AccessPublished, Summary: "why a scheduled message is not sent", serve: (*API).scheduledWhy},

	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/queued-jobs", Access: AccessData, Summary: "list the queued jobs of a pull consumer", Headers: workerHeaders, Query: queuedQueries, data: DataPlane.QueuedJobs},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessData, Summary: "move a job of a pull consumer", Body: smallBody, Headers: leaseHeaders, data: DataPlane.MoveJob},

	{Method: post, Path: "/channel/{channel}/batch", Access: AccessData, Summary: "publish many messages, NDJSON", Body: OwnBody, Headers: linesHeaders, data: batch},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/claim", Access: AccessData, Summary: "lease many jobs of a pull consumer", Body: smallBody, Headers: claimHeaders, Query: claimQueries, data: DataPlane.ClaimJobs},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/jobs", Access: AccessData, Summary: "move many jobs of a pull consumer", Body: updatesBody, Headers: workerHeaders, data: DataPlane.UpdateJobs},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/workers", Access: AccessOwn, Summary: "the living workers of a pull consumer", serve: (*API).getWorkers},

	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessJob, Summary: "a job", serve: (*API).getJob},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/job/{job}/timeline", Access: AccessJob, Summary: "what became of a job", Query: pageQueries, serve: (*API).jobTimeline},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/job/{job}/requeue-dead-job", Access: AccessConsumer, Audit: "redrive dead letter", Summary: "redrive a dead letter", Body: smallBody, serve: (*API).requeueDeadJob},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: AccessForm, Audit: "redrive dead letters", Summary: "redrive all dead letters of a consumer", Body: smallBody, serve: (*API).redriveDLQ},

	{Method: del, Path: "/producer/{producer}", Access: AccessManagement, Audit: "delete producer", Summary: "delete a producer", serve: (*API).deleteProducer},
	{Method: del, Path: "/channel/{channel}", Access: AccessManagement, Audit: "delete channel", Summary: "delete a channel without consumers", serve: (*API).deleteChannel},
	{Method: del, Path: "/group/{group}", Access: AccessManagement, Audit: "delete group", Summary: "delete a group without channels", serve: (*API).deleteGroup},
	{Method: del, Path: "/channel/{channel}/consumer/{consumer}", Access: AccessManagement, Audit: "delete consumer", Summary: "delete a consumer", serve: (*API).deleteConsumer},
	{Method: del, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: AccessOwn, Audit: "delete dead letters", Summary: "delete all dead letters of a consumer", serve: (*API).deleteDLQ},
	{Method: del, Path: "/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessOwn, Audit: "delete dead letter", Summary: "delete a dead letter", serve: (*API).deleteDeadJob},

	{Method: post, Path: "/channel/{channel}/sqs-key", Access: AccessManagement, Audit: "make SQS key", Summary: "make an access key for SQS clients", Body: smallBody, serve: (*API).makeKey},
	{Method: get, Path: "/channel/{channel}/sqs-key", Access: AccessManagement, Summary: "list the access keys of a channel", Query: pageQueries, serve: (*API).listKeys},
	{Method: del, Path: "/channel/{channel}/sqs-key", Access: AccessManagement, Audit: "end SQS keys", Summary: "end all access keys of a channel", serve: (*API).endKeys, always: true},
	{Method: del, Path: "/channel/{channel}/sqs-key/{key}", Access: AccessManagement, Audit: "end SQS key", Summary: "end an access key", serve: (*API).endKey, always: true},
	{Method: post, Path: "/tokens", Access: AccessTokens, Audit: "make API token", Summary: "make an API token", Body: smallBody, serve: (*API).makeToken},
	{Method: get, Path: "/tokens", Access: AccessTokens, Summary: "list the API tokens", Query: pageQueries, serve: (*API).listTokens},
	{Method: del, Path: "/tokens/{token}", Access: AccessTokens, Audit: "end API token", Summary: "end an API token", serve: (*API).endToken, always: true},
	{Method: post, Path: "/producer/{producer}/rotate-token", Access: AccessManagement, Audit: "rotate token", Summary: "give a producer a new token", Body: smallBody, serve: (*API).rotateProducer},
	{Method: post, Path: "/channel/{channel}/rotate-token", Access: AccessManagement, Audit: "rotate token", Summary: "give a channel a new token", Body: smallBody, serve: (*API).rotateChannel},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/rotate-token", Access: AccessManagement, Audit: "rotate token", Summary: "give a consumer a new token", Body: smallBody, serve: (*API).rotateConsumer},
	{Method: post, Path: "/", Access: AccessSQS, Summary: "an action of SQS", Body: OwnBody, own: (*API).serveSQS},
	{Method: post, Path: "/sqs/{channel}/{consumer}", Access: AccessSQS, Summary: "an action of SQS, at a QueueUrl", Body: OwnBody, own: (*API).serveSQS},

	{Method: get, Path: "/ui/", Access: AccessUI, Summary: "the dashboard: is all well?", Query: []string{"over"}, serve: dashboard("/ui/")},
	{Method: get, Path: "/ui/channels", Access: AccessUI, Summary: "the page of all channels", Query: []string{"group", "first"}, serve: dashboard("/ui/channels")},
	{Method: get, Path: "/ui/groups", Access: AccessUI, Summary: "the page of all groups", Query: []string{"first", "done"}, serve: dashboard("/ui/groups")},
	{Method: get, Path: "/ui/group/{group}/action/{action}", Access: AccessUI, Summary: "what an action on a group would do", serve: dashboard("/ui/group/{group}/action/{action}")},
	{Method: post, Path: "/ui/group/{group}/action/{action}", Access: AccessUI, Summary: "do an action on a group", Body: smallBody, serve: dashboard("/ui/group/{group}/action/{action}")},
	{Method: get, Path: "/ui/channel/{channel}", Access: AccessUI, Summary: "the page of a channel", Query: []string{"over", "since", "first", "place", "done"}, serve: dashboard("/ui/channel/{channel}")},
	{Method: get, Path: "/ui/dlq", Access: AccessUI, Summary: "the page of dead letters by cause", Query: []string{"channel", "consumer"}, serve: dashboard("/ui/dlq")},
	{Method: get, Path: "/ui/dlq/export", Access: AccessUI, Summary: "dead letters as a file", Query: []string{"channel", "consumer", "fingerprint"}, serve: dashboard("/ui/dlq/export")},
	{Method: get, Path: "/ui/redrives", Access: AccessUI, Summary: "the page of redrives", Query: []string{"channel", "consumer", "first"}, serve: dashboard("/ui/redrives")},
	{Method: get, Path: "/ui/scheduled", Access: AccessUI, Summary: "the page of scheduled messages", Query: []string{"channel", "first", "place"}, serve: dashboard("/ui/scheduled")},
	{Method: get, Path: "/ui/bulks", Access: AccessUI, Summary: "the page of bulks", Query: []string{"channel", "first"}, serve: dashboard("/ui/bulks")},
	{Method: get, Path: "/ui/replays", Access: AccessUI, Summary: "the page of replays", Query: []string{"channel", "consumer", "first"}, serve: dashboard("/ui/replays")},
	{Method: get, Path: "/ui/brokers", Access: AccessUI, Summary: "the page of the brokers", Query: []string{"show"}, serve: dashboard("/ui/brokers")},
	{Method: get, Path: "/ui/bench", Access: AccessUI, Summary: "the page of reports of bench", Query: []string{"report"}, serve: dashboard("/ui/bench")},
	{Method: get, Path: "/ui/bench/report", Access: AccessUI, Summary: "a report of bench, for a frame of its page", Query: []string{"report"}, serve: dashboard("/ui/bench/report")},
	{Method: get, Path: "/ui/publish", Access: AccessUI, Summary: "the form that sends a message", Query: []string{"channel", "again"}, serve: dashboard("/ui/publish")},
	{Method: post, Path: "/ui/publish", Access: AccessUI, Summary: "send a message by the dashboard", Body: formBody, serve: dashboard("/ui/publish")},
	{Method: get, Path: "/ui/search", Access: AccessUI, Summary: "search for IDs, names and by terms", Query: []string{"q", "first"}, serve: dashboard("/ui/search")},
	{Method: get, Path: "/ui/consumers", Access: AccessUI, Summary: "the page of all consumers", Query: consumersQueries, serve: dashboard("/ui/consumers")},
	{Method: get, Path: "/ui/channel/{channel}/consumer/{consumer}", Access: AccessUI, Summary: "the page of a consumer", Query: []string{"over", "done"}, serve: dashboard("/ui/channel/{channel}/consumer/{consumer}")},
	{Method: get, Path: "/ui/channel/{channel}/message/{message}", Access: AccessUI, Summary: "the page of a message", Query: []string{"first", "as", "show"}, serve: dashboard("/ui/channel/{channel}/message/{message}")},
	{Method: get, Path: "/ui/channel/{channel}/message/{message}/raw", Access: AccessUI, Summary: "a payload as it was sent", serve: dashboard("/ui/channel/{channel}/message/{message}/raw")},
	{Method: get, Path: "/ui/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessUI, Summary: "the page of a job", Query: []string{"first", "as"}, serve: dashboard("/ui/channel/{channel}/consumer/{consumer}/job/{job}")},
	{Method: get, Path: "/ui/channel/{channel}/action/{action}", Access: AccessUI, Summary: "what an action on a channel would do", serve: dashboard("/ui/channel/{channel}/action/{action}")},
	{Method: post, Path: "/ui/channel/{channel}/action/{action}", Access: AccessUI, Summary: "do an action on a channel", Body: smallBody, serve: dashboard("/ui/channel/{channel}/action/{action}")},
	{Method: get, Path: "/ui/channel/{channel}/message/{message}/action/{action}", Access: AccessUI, Summary: "ask before a hidden payload is shown", serve: dashboard("/ui/channel/{channel}/message/{message}/action/{action}")},
	{Method: post, Path: "/ui/channel/{channel}/message/{message}/action/{action}", Access: AccessUI, Summary: "show a hidden payload once", Body: smallBody, serve: dashboard("/ui/channel/{channel}/message/{message}/action/{action}")},
	{Method: get, Path: "/ui/channel/{channel}/consumer/{consumer}/action/{action}", Access: AccessUI, Summary: "what an action on a consumer would do", Query: actionQueries, serve: dashboard("/ui/channel/{channel}/consumer/{consumer}/action/{action}")},
	{Method: post, Path: "/ui/channel/{channel}/consumer/{consumer}/action/{action}", Access: AccessUI, Summary: "do an action on a consumer", Body: smallBody, Query: actionQueries, serve: dashboard("/ui/channel/{channel}/consumer/{consumer}/action/{action}")},
	{Method: get, Path: "/ui/portal", Access: AccessUI, Summary: "take a link to the pages of a consumer", Query: []string{"link"}, serve: dashboard("/ui/portal")},
	{Method: get, Path: "/ui/login", Access: AccessUI, Summary: "the login of the dashboard", Query: []string{"next"}, serve: dashboard("/ui/login")},
	{Method: post, Path: "/ui/login", Access: AccessUI, Summary: "begin a session of the dashboard", Body: smallBody, serve: dashboard("/ui/login")},
	{Method: post, Path: "/ui/logout", Access: AccessUI, Summary: "end a session of the dashboard", Body: smallBody, serve: dashboard("/ui/logout")},
	{Method: get, Path: "/ui/style.css", Access: AccessUI, Summary: "the style sheet of the dashboard", serve: dashboard("/ui/style.css")},
	{Method: get, Path: "/ui/icon.svg", Access: AccessUI, Summary: "the icon of the dashboard", serve: dashboard("/ui/icon.svg")},
	{Method: get, Path: "/ui/script.js", Access: AccessUI, Summary: "the script of the dashboard", serve: dashboard("/ui/script.js")},

	{Method: get, Path: "/", Access: AccessOps, Summary: "what this is, and links", serve: (*API).getRoot},
	{Method: get, Path: "/livez", Access: AccessOps, Summary: "the process is alive", serve: (*API).livez},
	{Method: get, Path: "/readyz", Access: AccessOps, Summary: "this broker can accept messages", serve: (*API).readyz},
	{Method: get, Path: "/metrics", Access: AccessOps, Summary: "metrics in Prometheus text", serve: (*API).getMetrics},
	{Method: get, Path: "/metrics/consumers", Access: AccessOps, Summary: "metrics of each consumer in Prometheus text", Query: consumerMetricsQueries, serve: (*API).getConsumerMetrics},
	{Method: get, Path: "/version", Access: AccessOps, Summary: "version and build of this broker", serve: (*API).getVersion},
	{Method: get, Path: "/openapi.json", Access: AccessOps, Summary: "this API in OpenAPI 3.1", serve: reference(openapi.JSON)},
	{Method: get, Path: "/docs", Access: AccessOps, Summary: "the page of all routes, and a search", Query: []string{"q"}, serve: (*API).getDocs},
	{Method: get, Path: "/docs/try", Access: AccessOps, Summary: "a form for each route", serve: reference(openapi.Try)},
	{Method: get, Path: "/docs/try.js", Access: AccessOps, Summary: "the script of the forms", serve: reference(openapi.Script)},
	{Method: get, Path: "/docs/errors", Access: AccessOps, Summary: "the page of all errors", serve: reference(openapi.Errors)},
	{Method: get, Path: "/_status", Access: AccessOps, Summary: "health check of the older implementation", serve: (*API).getStatus},
	{Method: get, Path: "/job-status", Access: AccessOps, Summary: "count jobs by consumer and state, as the older implementation", Query: summaryQueries, serve: (*API).getJobStatus},
	{Method: get, Path: "/dlq-status", Access: AccessOps, Summary: "count dead letters by consumer, as the older implementation", Query: summaryQueries, serve: (*API).getDLQStatus},
}

// broadcastRoute is the broadcast route's name in metrics.
const broadcastRoute = post + " /channel/{channel}/broadcast"

// routeNamed returns the route of a name in metrics.
func routeNamed(name string) *Route {
	i := slices.IndexFunc(table, func(r Route) bool { return r.Method+" "+r.Path == name })
	return &table[i]
}

func broadcast(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit) {
	channelID, _ := rc.UserValue("channel").(string)
	d.Broadcast(rc, channelID)
}

func requestAndWait(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit) { d.Request(rc) }
func receipt(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit)        { d.Receipt(rc) }

func batch(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit) { d.BroadcastBatch(rc) }

// broadcastChannel recognises a broadcast by its plain path, without query and without
// encoded characters. Clients send this form. The channel ID that it returns is part of the
// request's memory. Every other request takes the router.
func broadcastChannel(rc *fasthttp.RequestCtx) (channelID string, ok bool) {
	const prefix, suffix = "/channel/", "/broadcast"
	uri := rc.RequestURI()
	if len(uri) <= len(prefix)+len(suffix) || !rc.IsPost() ||
		string(uri[:len(prefix)]) != prefix || string(uri[len(uri)-len(suffix):]) != suffix {
		return "", false
	}
	segment := uri[len(prefix) : len(uri)-len(suffix)]
	channelID = unsafe.String(unsafe.SliceData(segment), len(segment))
	return channelID, ident.ValidName(channelID)
}

// Routes returns the route table, for documentation and its tests.
func Routes() []Route { return slices.Clone(table) }

// params returns the names of the path parameters of r, in order.
func (r Route) params() []string {
	var names []string
	for _, segment := range strings.Split(r.Path, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}

// newRouter never redirects, because clients would send their tokens to the target of a
// redirect; people who leave out the slash of the dashboard excepted. A path with a trailing slash is 404.
func (a *API) newRouter() *router.Router {
	r := router.New()
	r.RedirectTrailingSlash = false
	r.RedirectFixedPath = false
	unmatched := a.metrics.route("unmatched")
	r.NotFound = a.instrument(unmatched, func(rc *fasthttp.RequestCtx) {
		if a.o.UI != nil && rc.IsGet() && string(rc.Path()) == "/ui" { // the router takes one of /ui and /ui/
			a.toDashboard(rc)
			return
		}
		a.fail(rc, a.unmatched(rc, problem.New(fasthttp.StatusNotFound, "no_such_path", "This path names no resource. GET / says what there is, with links.")))
	})
	r.MethodNotAllowed = a.instrument(unmatched, func(rc *fasthttp.RequestCtx) {
		a.fail(rc, a.unmatched(rc, problem.New(fasthttp.StatusMethodNotAllowed, "method_not_allowed", "The Allow header lists the methods of this resource.")))
	})
	for _, route := range table {
		if !a.has(route) {
			continue
		}
		h := a.guarded(route, a.handler(route))
		if !route.Access.urgent() {
			h = a.punctual(h)
		}
		h = a.instrument(a.metrics.route(route.Method+" "+route.Path), h)
		r.Handle(route.Method, route.Path, h)
		if route.Method == get {
			r.Handle(head, route.Path, h)
		}
	}
	return r
}

// unmatched is the refusal of a request that no route takes. It tells an SQS client that the door is closed, where
// it is.
func (a *API) unmatched(rc *fasthttp.RequestCtx, p *problem.Problem) error {
	if a.o.SQS == nil && sqs.Asks(rc) {
		p.Detail = "This broker takes no requests of SQS clients: BROKER_SQS is off."
	}
	return p
}

// has reports whether this installation has a route of the table.
func (a *API) has(r Route) bool {
	switch {
	case r.Access == AccessSQS:
		return a.o.SQS != nil
	case r.Access == AccessUI:
		return a.o.UI != nil
	}
	return r.Method != del || a.o.AllowDelete || r.always
}

// getters returns what answers a GET of the control plane, by the path of its route.
func getters(routes []Route) map[string]func(*API, context.Context, *fasthttp.RequestCtx) error {
	all := map[string]func(*API, context.Context, *fasthttp.RequestCtx) error{}
	for _, r := range routes {
		if r.Method == get && r.serve != nil {
			all[r.Path] = r.serve
		}
	}
	return all
}

// handler does the common steps of a route in the order path, tokens, body, so that a
// request without a token costs no memory. The data plane checks tokens itself, and loads
// the body after that.
func (a *API) handler(route Route) fasthttp.RequestHandler {
	params := route.params()
	body := intake.NewLimit(a.o.Bodies, max(route.Body, 0))
	if route.Access == AccessReceiver {
		body = body.Coded() // a response keeps its codings
	}
	if route.data != nil {
		return func(rc *fasthttp.RequestCtx) {
			if err := decodePathIDs(rc, params); err != nil {
				a.fail(rc, err)
				return
			}
			route.data(a.o.Data, rc, body)
		}
	}
	if route.own != nil {
		return func(rc *fasthttp.RequestCtx) {
			rc.SetUserValue(routeKey, &route)
			answer.SetKey(rc, share.Address(a.client(rc))) // until somebody is admitted
			err := decodePathIDs(rc, params)
			if err == nil {
				err = route.own(a, rc)
			}
			if err != nil {
				a.fail(rc, err)
			}
		}
	}
	return func(rc *fasthttp.RequestCtx) {
		rc.SetUserValue(routeKey, &route)
		answer.SetKey(rc, share.Address(a.client(rc))) // until somebody is admitted
		err := decodePathIDs(rc, params)
		if err == nil {
			err = within(rc, func(ctx context.Context) error { return a.admit(ctx, rc, route.Access) })
		}
		if err == nil {
			var loaded intake.Loaded
			loaded, err = body.Load(rc, answer.KeyOf(rc))
			defer body.Drop(rc, loaded)
		}
		if err == nil {
			err = within(rc, func(ctx context.Context) error { return a.recheck(ctx, rc) }) // its body may have come slowly
			route.withParams(rc)
		}
		if err == nil {
			err = within(rc, func(ctx context.Context) error { return route.serve(a, ctx, rc) })
		}
		if err != nil {
			a.fail(rc, err)
		}
	}
}

// within calls f with requestTimeout. The timeout covers the work in the stores and not the
// whole request, whose body may take longer.
func within(rc *fasthttp.RequestCtx, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(request.Of(rc), requestTimeout)
	defer cancel()
	return f(ctx)
}
