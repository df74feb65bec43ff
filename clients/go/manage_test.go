package penstock

import (
	"context"
	"errors"
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
