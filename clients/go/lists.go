package penstock

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// mostPage is the largest page of a list.
const mostPage = 100

// Each calls f with the elements of a list that comes in pages, such as /channels, /consumers or the jobs of a
// consumer, in its order, until f returns an error, which Each returns. limit bounds the elements; 0: all.
func (m *Manager) Each(ctx context.Context, path string, query url.Values, limit int,
	f func(element json.RawMessage) error) error {
	q := url.Values{}
	maps.Copy(q, query)
	size := mostPage
	if limit > 0 {
		size = min(limit, mostPage)
	}
	q.Set("limit", strconv.Itoa(size))
	n := 0
	for next := path + "?" + q.Encode(); next != ""; {
		var page struct {
			Result, DeadJobs []json.RawMessage
			Pages            struct{ Next string }
		}
		if err := m.Read(ctx, next, nil, &page); err != nil {
			return err
		}
		for _, element := range append(page.Result, page.DeadJobs...) {
			if err := f(element); err != nil {
				return err
			}
			if n++; n == limit {
				return nil
			}
		}
		next = page.Pages.Next
	}
	return nil
}

// PutJSON is Put with a JSON object, such as what GET of the resource shows.
func (m *Manager) PutJSON(ctx context.Context, path string, object []byte) (r Resource, created bool, err error) {
	a, err := m.do(ctx, call{method: http.MethodPut, path: path, body: object,
		header: http.Header{"Content-Type": {"application/json"}}}, &r)
	if err != nil {
		return r, false, err
	}
	r.complete(a)
	return r, a.status == http.StatusCreated, nil
}

// Retry makes all delayed jobs of a consumer due now, and returns how many those were.
func (m *Manager) Retry(ctx context.Context, channel, consumer string) (retried int, err error) {
	var a struct{ Retried int }
	err = m.Post(ctx, consumerPath(channel, consumer)+"/retry", nil, &a)
	return a.Retried, err
}

// Purge ends queued jobs of a consumer: they are dead letters, or with forget they are over. more: there are others,
// call it again.
func (m *Manager) Purge(ctx context.Context, channel, consumer string, forget bool) (purged int, more bool, err error) {
	path := consumerPath(channel, consumer) + "/purge"
	if forget {
		path += "?forget=true"
	}
	var a struct {
		Purged int
		More   bool
	}
	err = m.Post(ctx, path, nil, &a)
	return a.Purged, a.More, err
}

// A SeenWorker is a worker of a pull consumer that the brokers heard of within a minute.
type SeenWorker struct {
	Name, Version, Address string
	Slots, InFlight        int
	Tasks                  []string
	LastSeenAt             time.Time
}

// Workers returns the living workers of a pull consumer, by name.
func (m *Manager) Workers(ctx context.Context, channel, consumer string) ([]SeenWorker, error) {
	var page struct{ Result []SeenWorker }
	err := m.Read(ctx, consumerPath(channel, consumer)+"/workers", nil, &page)
	return page.Result, err
}

// A DeadGroup is the dead letters of a consumer that have one cause.
type DeadGroup struct {
	Fingerprint, Sample, SampleJob string
	Status                         int
	Count                          int64
	FirstAt, LastAt                time.Time
}

// DeadGroups returns the dead letters of a consumer by cause, the largest group first.
func (m *Manager) DeadGroups(ctx context.Context, channel, consumer string) ([]DeadGroup, error) {
	var page struct{ Result []DeadGroup }
	err := m.Read(ctx, consumerPath(channel, consumer)+"/dlq/groups", nil, &page)
	return page.Result, err
}
