package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/test/screens"
)

func TestAPageOfTheDashboardTakesThreeStatements(t *testing.T) {
	var sent []string
	var stored *pageStore
	w, count := newUIWorld(t, func(o *Options) {
		real := o.Store.(*durable.Store)
		stored = &pageStore{real, real, &sent}
		o.Store = stored
		lister := o.Lister.(*jobs.Lister)
		o.Lister = &jobs.Lister{Store: listStore{stored}, Queue: lister.Queue, NowMs: lister.NowMs}
		o.Jobs = &pageJobs{nil, o.Jobs, &sent}
		o.Why = why.New(why.Options{Store: &whyStore{nil, real, &sent}, Queue: lister.Queue.(why.Queue),
			Catalogue: o.Catalogue, Policies: o.Policies, NowMs: func() int64 { return time.Now().UnixMilli() }})
	})
	w.channel()
	k := w.consumer("k", "push")
	w.kill(k, w.insert(durable.Message{}))
	m := w.insert(durable.Message{Payload: []byte("{}")})
	w.enqueue(k, m)
	w.consumer("pull", "pull")
	w.do("PUT", "/group/g", "name=g", formHeader).is(200)
	count()
	asked := w.screens(m, k)
	stored.Store = nil
	require.Empty(t, screens.Missed(uiRoutes(), asked), "each page of the table of routes is counted")
	for _, path := range asked {
		sent = nil
		r := w.get(path, browser)
		require.Less(t, r.Status, 400, "%s: %s", path, r.Body)
		require.LessOrEqual(t, len(sent), 3, "%s: %s", path, strings.Join(sent, "\n"))
	}
}

// uiRoutes are the paths of all GETs of the dashboard, but those of hidden payloads, which an entry in the audit log
// precedes.
func uiRoutes() (paths []string) {
	for _, r := range Routes() {
		if r.Access == AccessUI && r.Method == get && !strings.Contains(r.Path, "/message/{message}/action/") {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// screens are addresses of the dashboard where channel c has the message m, the push consumer k with a dead letter, and
// the consumer pull.
func (w *world) screens(m durable.Message, k *durable.Consumer) (paths []string) {
	of := func(prefix string, rest ...string) {
		for _, r := range rest {
			paths = append(paths, prefix+r)
		}
	}
	of("/ui/", "", "?over=30d", "consumers", "consumers?sort=dead", "channels", "channels?group=g", "channel/c", "groups",
		"dlq", "dlq?channel=c&consumer=k", "dlq/export?channel=c&consumer=k", "scheduled", "scheduled?channel=c",
		"bulks?channel=c", "replays", "replays?channel=c&consumer=k", "redrives?channel=c&consumer=k", "brokers",
		"brokers?show=settings", "bench", "bench?report="+benchReport, "bench/report?report="+benchReport, "publish",
		"publish?channel=c&again="+m.ID.String(), "search?q="+m.ID.String(), "search?q=k", "search?q=state:dead+consumer:k",
		"search?q=error:x+consumer:k", "search?q=payload:x", "search?q=state:queued+consumer:pull+age%3E1h", "login",
		"style.css", "icon.svg", "script.js")
	link := w.do("POST", "/channel/c/consumer/k/portal-link", `{"TTL":"1h"}`).is(200).json()["URL"].(string)
	of("", link[strings.Index(link, "/ui/portal"):])
	of("/ui/channel/c/message/"+m.ID.String(), "", "/raw", "?show=responses")
	of("/ui/channel/c/consumer/k/", "job/"+m.ID.Job(k.Position).String())
	of("/ui/channel/c/consumer/", "k", "pull")
	of("/ui/channel/c/consumer/k/action/", "pause", "retry", "test", "rotate", "purge", "redrive", "redrive?canary=true")
	of("/ui/group/g/action/", "pause", "resume")
	of("/ui/channel/c/action/", "pause", "resume")
	return paths
}

// A pageStore is the store of an API whose pages are counted. Each of its methods is one statement; without its
// Store it has no others.
type pageStore struct {
	Store
	real *durable.Store
	sent *[]string
}

func (p *pageStore) History(ctx context.Context, scope durable.HistoryScope, no uint32, step int, from,
	to int64) ([]durable.HistoryRow, error) {
	*p.sent = append(*p.sent, "history")
	return p.real.History(ctx, scope, no, step, from, to)
}

func (p *pageStore) Marks(ctx context.Context, channelNo, consumerNo uint32, from, to int64,
	limit int) ([]durable.HistoryMark, error) {
	*p.sent = append(*p.sent, "marks")
	return p.real.Marks(ctx, channelNo, consumerNo, from, to, limit)
}

func (p *pageStore) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error) {
	*p.sent = append(*p.sent, "messages")
	return p.real.Messages(ctx, channelNo, ids)
}

func (p *pageStore) ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message,
	error) {
	*p.sent = append(*p.sent, "list of messages")
	return p.real.ListMessages(ctx, channelNo, from, limit)
}

func (p *pageStore) MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error) {
	*p.sent = append(*p.sent, "key")
	return p.real.MessageByKey(ctx, channelNo, key)
}

func (p *pageStore) Steps(ctx context.Context, of durable.StepPage) ([]durable.Step, durable.Step, bool, error) {
	*p.sent = append(*p.sent, "steps")
	return p.real.Steps(ctx, of)
}

func (p *pageStore) Schedules(ctx context.Context, channelNo uint32, statuses []durable.ScheduleStatus,
	from *durable.Scheduled, limit int) ([]*durable.Scheduled, error) {
	*p.sent = append(*p.sent, "schedules")
	return p.real.Schedules(ctx, channelNo, statuses, from, limit)
}

func (p *pageStore) Bulks(ctx context.Context, channelNo, producerNo uint32, from ident.ID, limit int) ([]*durable.Bulk,
	error) {
	*p.sent = append(*p.sent, "bulks")
	return p.real.Bulks(ctx, channelNo, producerNo, from, limit)
}

func (p *pageStore) Replays(ctx context.Context, k durable.Consumer, from uint32, limit int) ([]durable.Replay, error) {
	*p.sent = append(*p.sent, "replays")
	return p.real.Replays(ctx, k, from, limit)
}

func (p *pageStore) ReplayCounts(ctx context.Context, r *durable.Replay) (durable.ReplayCounts, error) {
	*p.sent = append(*p.sent, "counts of a replay")
	return p.real.ReplayCounts(ctx, r)
}

func (p *pageStore) Redrivings(ctx context.Context, consumerNo, from uint32, limit int) ([]durable.Redriving, error) {
	*p.sent = append(*p.sent, "redrives")
	return p.real.Redrivings(ctx, consumerNo, from, limit)
}

func (p *pageStore) DeadGroups(ctx context.Context, consumerNo uint32, limit int) ([]durable.DeadGroup, error) {
	*p.sent = append(*p.sent, "groups")
	return p.real.DeadGroups(ctx, consumerNo, limit)
}

func (p *pageStore) DeadLetters(ctx context.Context, of durable.DeadSelection, from ident.ID, down bool,
	limit int) ([]durable.DeadJob, ident.ID, error) {
	*p.sent = append(*p.sent, "dead letters")
	return p.real.DeadLetters(ctx, of, from, down, limit)
}

func (p *pageStore) Senders(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error) {
	*p.sent = append(*p.sent, "senders")
	return p.real.Senders(ctx, channelNo, ids)
}

func (p *pageStore) CountDead(ctx context.Context, of durable.DeadSelection) (int64, bool, error) {
	*p.sent = append(*p.sent, "count of dead letters")
	return p.real.CountDead(ctx, of)
}

func (p *pageStore) DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob,
	error) {
	*p.sent = append(*p.sent, "dead jobs")
	return p.real.DeadJobs(ctx, consumerNo, from, limit)
}

func (p *pageStore) DeadJobsBack(ctx context.Context, consumerNo uint32, from ident.ID,
	limit int) ([]durable.DeadJob, error) {
	*p.sent = append(*p.sent, "dead jobs, the newest first")
	return p.real.DeadJobsBack(ctx, consumerNo, from, limit)
}

func (p *pageStore) JobRows(ctx context.Context, k *durable.Consumer, r durable.IDRange,
	limit int) ([]durable.JobRow, error) {
	*p.sent = append(*p.sent, "jobs")
	return p.real.JobRows(ctx, k, r, limit)
}

func (p *pageStore) JobRowsOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]durable.JobRow, error) {
	*p.sent = append(*p.sent, "some jobs")
	return p.real.JobRowsOf(ctx, k, ids)
}

func (p *pageStore) SearchRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, find []byte,
	limit int) ([]durable.JobRow, error) {
	*p.sent = append(*p.sent, "search in payloads")
	return p.real.SearchRows(ctx, k, r, find, limit)
}

// A listStore is a pageStore for lists of jobs.
type listStore struct{ *pageStore }

func (s listStore) Settled(ctx context.Context, consumerNo uint32) (ident.ID, error) {
	*s.sent = append(*s.sent, "settled")
	return s.real.Settled(ctx, consumerNo)
}

func (s listStore) OpenRows(ctx context.Context, k *durable.Consumer, r durable.IDRange,
	limit int) ([]durable.JobRow, error) {
	*s.sent = append(*s.sent, "open jobs")
	return s.real.OpenRows(ctx, k, r, limit)
}

// A pageJobs is a pageStore for the backlog of a consumer, whose page asks for the version of the catalogue before.
type pageJobs struct {
	Jobs
	real Jobs
	sent *[]string
}

func (d *pageJobs) Backlog(ctx context.Context, k durable.Consumer) (jobs.Backlog, error) {
	*d.sent = append(*d.sent, "version of the catalogue", "settled", "backlog")
	return d.real.Backlog(ctx, k)
}

// A whyStore is a pageStore for reasons.
type whyStore struct {
	why.Store
	real *durable.Store
	sent *[]string
}

func (s *whyStore) Facts(ctx context.Context, consumers []uint32) ([]durable.Fact, error) {
	*s.sent = append(*s.sent, "facts")
	return s.real.Facts(ctx, consumers)
}

func (s *whyStore) CircumstancesOf(ctx context.Context, consumerNo uint32) (durable.Circumstances, error) {
	*s.sent = append(*s.sent, "circumstances")
	return s.real.CircumstancesOf(ctx, consumerNo)
}

func (s *whyStore) UnfinishedJobs(ctx context.Context, k durable.Consumer, settled ident.ID,
	limit int) ([]durable.Unfinished, bool, error) {
	*s.sent = append(*s.sent, "unfinished jobs")
	return s.real.UnfinishedJobs(ctx, k, settled, limit)
}

func (s *whyStore) Plights(ctx context.Context, channelNo uint32, id ident.ID, limit int) ([]durable.Plight, error) {
	*s.sent = append(*s.sent, "plights")
	return s.real.Plights(ctx, channelNo, id, limit)
}

func (s *whyStore) PlightOf(ctx context.Context, channelNo uint32, id ident.ID, consumerNo uint32) (durable.Plight,
	error) {
	*s.sent = append(*s.sent, "plight")
	return s.real.PlightOf(ctx, channelNo, id, consumerNo)
}
