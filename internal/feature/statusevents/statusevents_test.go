package statusevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

func TestTheBitsOfTheSettingAreThoseOfTheStore(t *testing.T) {
	for text, kind := range map[string]durable.StatusKind{
		"delivered": durable.StatusDelivered, "failed": durable.StatusFailed, "dead": durable.StatusDead, "off": 0, "": 0,
		"all":          durable.StatusDelivered | durable.StatusFailed | durable.StatusDead,
		" dead,failed": durable.StatusDead | durable.StatusFailed,
	} {
		record, err := policy.MergeSender("", map[string]string{"statusEvents": text})
		require.NoError(t, err, text)
		require.Equal(t, kind, durable.StatusKind(policy.SenderOf(record).StatusEvents), text)
	}
	for _, wrong := range []string{"read", "delivered,", "All", "off,dead", ","} {
		_, err := policy.MergeSender("", map[string]string{"statusEvents": wrong})
		require.Error(t, err, wrong)
	}
}

func TestOutcomesAreTheEventsThatAProducerExpects(t *testing.T) {
	for _, c := range []struct {
		o    durable.Outcome
		want durable.StatusKind
	}{
		{durable.Outcome{Kind: durable.OutcomeDelivered}, durable.StatusDelivered},
		{durable.Outcome{Kind: durable.OutcomeRetry}, durable.StatusFailed},
		{durable.Outcome{Kind: durable.OutcomeDead, Reason: durable.AttemptsExhausted},
			durable.StatusFailed | durable.StatusDead},
		{durable.Outcome{Kind: durable.OutcomeDead, Reason: durable.Expired}, durable.StatusDead},
		{durable.Outcome{Kind: durable.OutcomeDead, Reason: durable.BlockedKey}, durable.StatusDead},
	} {
		require.Equal(t, c.want, kindsOf(&c.o))
	}
}

// A world has one producer, number 7. Its channel of replies has the number 107.
type world struct {
	mu      sync.Mutex
	events  []durable.StatusEvent
	batches []durable.StatusBatch
	changes durable.Changes
	sent    []*durable.Message
	refused error // what Publish answers
	missing error // what Ensure answers
}

func (w *world) Changes(context.Context, int64) (durable.Changes, error) { return w.changes, nil }

func (w *world) Extent(context.Context) (durable.Extent, error) {
	return durable.Extent{Version: w.changes.Version}, nil
}

func (w *world) Touch(context.Context, durable.Numbers) error { return nil }

func (w *world) NextStatusProducer(_ context.Context, after uint32) (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after < 7 && len(w.events) > 0 {
		return 7, nil
	}
	return 0, nil
}

func (w *world) StatusEvents(_ context.Context, _ uint32, limit int) ([]durable.StatusEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]durable.StatusEvent(nil), w.events[:min(limit, len(w.events))]...), nil
}

func (w *world) BatchStatus(_ context.Context, b durable.StatusBatch, events []durable.StatusEvent) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = w.events[len(events):]
	if b.Body != nil {
		w.batches = append(w.batches, b)
	}
	return true, nil
}

func (w *world) StatusBatches(_ context.Context, after ident.ID, _ int) (out []durable.StatusBatch, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.batches {
		if b.ID.Compare(after) > 0 {
			out = append(out, b)
		}
	}
	return out, nil
}

func (w *world) FinishStatus(_ context.Context, id ident.ID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, b := range w.batches {
		if b.ID == id {
			w.batches = append(w.batches[:i:i], w.batches[i+1:]...)
			break
		}
	}
	return nil
}

func (w *world) Senders(context.Context, uint32, []ident.ID) ([]durable.Message, error) {
	return nil, nil
}

func (w *world) ensure(_ context.Context, p *durable.Producer) (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 100 + p.No, w.missing
}

func (w *world) publish(_ context.Context, m *durable.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != nil {
		return w.refused
	}
	w.sent = append(w.sent, m)
	return nil
}

func newWorld(t *testing.T, settings map[string]string, events int) (*world, *Collector) {
	record, err := policy.MergeSender("", settings)
	require.NoError(t, err)
	w := &world{events: make([]durable.StatusEvent, events), changes: durable.Changes{Version: 1,
		Producers: []durable.Producer{{No: 7, ID: "p", Version: 1, Settings: record}},
		Channels:  []durable.Channel{{No: 1, ID: ident.StatusChannel, Version: 1}},
	}}
	c := catalogue.New(w, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	return w, New(Options{Store: w, Catalogue: c, Owns: func(uint32) bool { return true }, IDs: ids.Next,
		Publish: w.publish, Ensure: w.ensure, Log: slog.New(slog.DiscardHandler)})
}

func TestARoundIsBoundedAndNothingIsDropped(t *testing.T) {
	w, c := newWorld(t, map[string]string{"statusEvents": "all"}, BatchEvents*PerRound+1)
	require.NoError(t, c.round(t.Context()))
	require.Len(t, w.sent, PerRound)
	require.Len(t, w.events, 1)
	require.NoError(t, c.round(t.Context()))
	require.Len(t, w.sent, PerRound+1)
	require.Empty(t, w.batches)
	total, keys := 0, map[string]bool{}
	for _, m := range w.sent {
		var n apitype.StatusNotice
		require.NoError(t, json.Unmarshal(m.Payload, &n))
		require.Equal(t, "p", n.ProducerID)
		total += len(n.Events)
		keys[m.Key] = true
	}
	require.Equal(t, BatchEvents*PerRound+1, total)
	require.Len(t, keys, PerRound+1)
}

func TestABatchThatIsNotTakenIsPublishedInTheNextRound(t *testing.T) {
	w, c := newWorld(t, map[string]string{"statusEvents": "all"}, 2)
	w.refused = errors.New("the channel is paused")
	require.Error(t, c.round(t.Context()))
	require.Len(t, w.batches, 1)
	key := key(&w.batches[0])
	w.refused = &durable.DuplicateError{} // by a broker that died
	require.NoError(t, c.round(t.Context()))
	require.Empty(t, w.batches)
	require.Contains(t, key, "status-")
}

func TestEventsOfADeletedProducerAreDropped(t *testing.T) {
	w, c := newWorld(t, nil, 3)
	w.changes.Producers[0].Deleted, w.changes.Producers[0].Version = true, 2
	require.NoError(t, c.o.Catalogue.Refresh(t.Context()))
	require.NoError(t, c.round(t.Context()))
	require.Empty(t, w.events)
	require.Empty(t, w.batches)
	require.Empty(t, w.sent)
}

func TestABatchGoesWithTheRepliesWhereItsProducerHasAReplyURL(t *testing.T) {
	withURL := map[string]string{"statusEvents": "all", "replyUrl": "http://example.com/"}
	w, c := newWorld(t, withURL, 1)
	w.missing = errors.New("the store is away")
	require.Error(t, c.round(t.Context()))
	require.Empty(t, w.sent)
	require.Len(t, w.batches, 1)
	id := key(&w.batches[0])
	w.missing = nil
	require.NoError(t, c.round(t.Context()))
	require.Len(t, w.sent, 1)
	require.Equal(t, uint32(107), w.sent[0].ChannelNo)
	require.Zero(t, w.sent[0].ProducerNo)
	require.Equal(t, id, w.sent[0].Key)
	require.Equal(t, "X-Broker-Channel-ID:~status\n", string(w.sent[0].Headers))
	require.Empty(t, w.batches)

	for _, settings := range []map[string]string{{"statusEvents": "all"}, withURL} { // of an earlier round
		w, c := newWorld(t, settings, 0)
		w.batches = []durable.StatusBatch{{ID: c.o.IDs(), ProducerNo: 7, Body: []byte("{}")}}
		require.NoError(t, c.round(t.Context()))
		require.Len(t, w.sent, 1)
		require.Equal(t, settings["replyUrl"] == "", w.sent[0].ChannelNo == 1)
		require.Equal(t, "{}", string(w.sent[0].Payload))
		require.Empty(t, w.batches)
	}
}

func TestAProducerThatTheCopyLacksIsReadAgain(t *testing.T) {
	w, c := newWorld(t, nil, 0)
	w.changes = durable.Changes{Version: 2, Producers: []durable.Producer{{No: 8, ID: "q", Version: 2}}}
	w.batches = []durable.StatusBatch{{ID: c.o.IDs(), ProducerNo: 8, Body: []byte("{}")},
		{ID: c.o.IDs(), ProducerNo: 9, Body: []byte("{}")}}
	require.ErrorContains(t, c.round(t.Context()), "no producer with the number 9")
	require.Len(t, w.sent, 1)
	require.Len(t, w.batches, 1)
}
