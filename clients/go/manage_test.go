package penstock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResourcesAreMadeReadAndChanged(t *testing.T) {
	c, q := real(t)
	m := c.Manage()
	if _, _, err := m.Put(t.Context(), ChannelPath(q), Fields{"name": "a b"}); err != nil {
		t.Fatal(err)
	}
	k, created, err := m.Put(t.Context(), ConsumerPath(q, q), Fields{"type": "pull", "maxRetries": "0"})
	if err != nil || !created || k.Type != "pull" || k.Policy["MaxRetries"] != "0" || k.ETag == "" || k.Token == "" {
		t.Fatal(k, created, err)
	}
	if _, created, err = m.Put(t.Context(), ConsumerPath(q, q), Fields{"maxRetries": "1"}); err != nil || created {
		t.Fatal(created, err)
	}
	if _, _, err = m.Put(t.Context(), ConsumerPath(q, q), Fields{"maxRetires": "1"}); CodeOf(err) != "unknown_field" {
		t.Fatal(err)
	}
	if err := m.Pause(t.Context(), ConsumerPath(q, q)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(t.Context(), q, Job{Task: "a"}); err != nil {
		t.Fatal(err)
	}
	k, err = m.Get(t.Context(), ConsumerPath(q, q))
	if err != nil || k.State != "PAUSED" || k.Queued == nil || *k.Queued != 1 || len(k.More["Inherited"]) == 0 {
		t.Fatal(k, err)
	}
	why, err := m.Why(t.Context(), ConsumerPath(q, q))
	if err != nil || why.Summary == "" || len(why.Reasons) == 0 || why.Reasons[0].Code != "paused" {
		t.Fatal(why, err)
	}
	if err := m.Resume(t.Context(), ConsumerPath(q, q)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(t.Context(), ChannelPath(q+"-none")); CodeOf(err) != "channel_not_found" {
		t.Fatal(err)
	}
	if err := m.Delete(t.Context(), ConsumerPath(q, q)); CodeOf(err) != "method_not_allowed" {
		t.Fatal(err)
	}
}

func TestDeadLettersAreListedAndRedriven(t *testing.T) {
	c, q := real(t)
	m := c.Manage()
	jobs := make([]Job, 150)
	for i := range jobs {
		jobs[i] = Job{Task: "dies"}
	}
	if _, err := c.EnqueueMany(t.Context(), q, jobs); err != nil {
		t.Fatal(err)
	}
	w := worker(t, c, q, WorkerOptions{Concurrency: 50})
	w.Handle("dies", func(context.Context, *Delivery) error { return Reject("out of stock") })
	stop := working(t, w)
	eventually(t, "the death of all", func() bool {
		k, err := m.Get(t.Context(), ConsumerPath(q, q))
		return err == nil && k.DeadLetters != nil && *k.DeadLetters == 150
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	dead, err := m.DeadLetters(t.Context(), q, q, nil, 1000)
	if err != nil || len(dead) != 150 || dead[0].Reason != "out of stock" || dead[0].ReasonCode != "by_consumer" {
		t.Fatal(len(dead), err)
	}
	counted, err := m.Redrive(t.Context(), q, q, Redrive{DryRun: true})
	if err != nil || counted.Matched != 150 {
		t.Fatal(counted, err)
	}
	if r, err := m.Redrive(t.Context(), q, q, Redrive{Jobs: []string{dead[0].ID, dead[1].ID}}); err != nil || r.ID == "" {
		t.Fatal(r, err)
	}
	eventually(t, "two jobs to be queued", func() bool {
		queued, err := m.Jobs(t.Context(), q, q, "QUEUED", 10)
		return err == nil && len(queued) == 2
	})
}

func TestAScheduledMessageIsReadChangedAndDeleted(t *testing.T) {
	c, ch := real(t)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	r, err := c.Publish(t.Context(), ch, Message{ID: "later", Payload: []byte("x"), At: at})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Scheduled(t.Context(), ch, r.Location)
	if err != nil || s.Status != "SCHEDULED" || !s.DispatchSchedule.Equal(at) || s.Payload != "x" {
		t.Fatal(s, err)
	}
	s, err = c.Reschedule(t.Context(), ch, r.Location, Message{At: at.Add(time.Hour)})
	if err != nil || !s.DispatchSchedule.Equal(at.Add(time.Hour)) || s.Payload != "x" {
		t.Fatal(s, err)
	}
	for range 2 {
		if err := c.Unschedule(t.Context(), ch, r.Location); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = c.Scheduled(t.Context(), ch, r.Location); CodeOf(err) != "scheduled_message_not_found" {
		t.Fatal(err)
	}
}

func TestABulkBecomesMessages(t *testing.T) {
	c, ch := real(t)
	body := strings.Repeat(`{"Payload":"row"}`+"\n", 1000) + "no row\n"
	path, err := c.PublishBulk(t.Context(), ch, "application/x-ndjson", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.AwaitBulk(t.Context(), ch, path)
	if err != nil || b.Published != 1000 || b.Rejected != 1 || len(b.BadRows) != 1 || b.BadRows[0].Row != 1001 {
		t.Fatal(b, err)
	}
	if _, err := c.PublishBulk(t.Context(), ch, "text/plain", strings.NewReader("x")); CodeOf(err) !=
		"unsupported_media_type" {
		t.Fatal(err)
	}
	if errors.Is(err, ErrBulkEnded) {
		t.Fatal(err)
	}
}

func TestListsGoOnBeyondAPage(t *testing.T) {
	c, q := real(t)
	m := c.Manage()
	if _, _, err := m.Put(t.Context(), ChannelPath(q), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 130 {
		if _, _, err := m.Put(t.Context(), ConsumerPath(q, fmt.Sprintf("k-%03d", i)), Fields{"type": "pull"}); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int]int{0: 130, 7: 7, 100: 100, 101: 101} {
		var names []string
		err := m.Each(t.Context(), "/consumers", url.Values{"channel": {q}}, limit, func(raw json.RawMessage) error {
			var r Resource
			err := json.Unmarshal(raw, &r)
			names = append(names, r.ID)
			return err
		})
		if err != nil || len(names) != want || !slices.IsSorted(names) {
			t.Fatal(limit, len(names), err)
		}
	}
	enough := errors.New("enough")
	err := m.Each(t.Context(), ChannelPath(q)+"/consumers", nil, 0, func(json.RawMessage) error { return enough })
	if err != enough {
		t.Fatal(err)
	}
}

func TestAnOperatorRetriesPurgesAndSeesWorkers(t *testing.T) {
	c, q := real(t)
	m := c.Manage()
	if _, err := c.EnqueueMany(t.Context(), q, []Job{{Task: "a"}, {Task: "b"}}); err != nil {
		t.Fatal(err)
	}
	if n, err := m.Retry(t.Context(), q, q); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	if n, more, err := m.Purge(t.Context(), q, q, false); err != nil || n != 2 || more {
		t.Fatal(n, more, err)
	}
	groups, err := m.DeadGroups(t.Context(), q, q)
	if err != nil || len(groups) != 1 || groups[0].Count != 2 || groups[0].LastAt.IsZero() {
		t.Fatal(groups, err)
	}
	if workers, err := m.Workers(t.Context(), q, q); err != nil || len(workers) != 0 {
		t.Fatal(workers, err)
	}
	shown, err := json.Marshal(map[string]string{"Name": "as JSON"})
	if err != nil {
		t.Fatal(err)
	}
	if r, created, err := m.PutJSON(t.Context(), ChannelPath(q), shown); err != nil || created || r.Name != "as JSON" {
		t.Fatal(r, created, err)
	}
}
