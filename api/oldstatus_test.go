package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
)

func TestTheSummariesOfTheOlderImplementation(t *testing.T) {
	var sample *sampler.Sample
	w := newWorld(t, func(o *Options) { o.Sample = func() *sampler.Sample { return sample } })
	require.Equal(t, "{}\n", w.get("/job-status").is(200).Body)
	require.Equal(t, "{\"consumers\":[]}\n", w.get("/dlq-status").is(200).Body)
	w.channel()
	k, idle := w.consumer("k", "pull"), w.consumer("idle", "pull")
	w.kill(k, w.insert(durable.Message{Key: "dead"}))
	dead := "{\"consumers\":[{\"channelId\":\"c\",\"channelName\":\"" + w.api.o.Catalogue.Channel("c").Name +
		"\",\"consumerId\":\"k\",\"consumerName\":\"" + k.Name + "\",\"deadCount\":1}]}\n"
	require.Equal(t, dead, w.get("/dlq-status").is(200).Body, "counted, as there is no sample")
	require.Equal(t, dead, w.get("/dlq-status?channel=c").is(200).Body)
	w.get("/dlq-status?channel=none").problem(404, "channel_not_found")
	w.get("/job-status?channel=c&channel=c").problem(400, "invalid_query")

	now := time.UnixMilli(w.api.o.NowMs()).UTC().Truncate(time.Second)
	sample = &sampler.Sample{At: now, Of: map[uint32]sampler.Level{k.No: {Known: true, Waiting: 3, InFlight: 2, Dead: 4,
		Oldest: now.Add(-time.Hour)}, idle.No: {Known: true}}}
	require.JSONEq(t, `{"c":{"k":[{"status":1001,"count":3,"oldestItemTimestamp":"`+
		now.Add(-time.Hour).Format("2006-01-02T15:04:05.000Z")+`"},{"status":1002,"count":2},{"status":1004,"count":4}]}}`,
		w.get("/job-status").is(200).Body)
	require.Contains(t, w.get("/dlq-status").is(200).Body, `"deadCount":4}]`)
	sample.At = now.Add(-time.Hour)
	require.Equal(t, dead, w.get("/dlq-status").is(200).Body, "an old sample says nothing")
}
