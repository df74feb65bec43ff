package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/why"
)

// The slots of a broker are taken by a consumer that hangs: another one that is as new waits.
func TestABrokerWithoutSlotsSaysThatItIsSaturated(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s := w.start("BROKER_PUSH_CONCURRENCY=1").stage(t)
		s.joined("hangs", "callbackUrl", neverAnswering(t), "timeout", "1h")
		s.publish("m")
		at := s.joined("k", "callbackUrl", neverAnswering(t))
		s.publish("m")
		s.awaitReason(at, why.BrokerSaturated)
	})
}

// A queue that nothing restores lacks the jobs of the store.
func TestFaultALostQueueIsToldAsLongAsItIsRestored(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_REAPER=false", "BROKER_RATIONAL_DELAY=500ms")
		s := p.stage(t)
		at := s.joined("k", "type", "pull")
		for range 3 {
			s.publish("m")
		}
		s.awaitQueued("k", 3)
		if w.redis != nil {
			w.flushall()
		} else {
			require.Zero(t, p.stop())
			p = w.start("BROKER_REAPER=false", "BROKER_RATIONAL_DELAY=500ms")
			s = s.on(p)
		}
		r := s.awaitReason(at, why.QueueRestoring)
		require.Equal(t, 3, r.Jobs)
		if w.redis == nil {
			require.Zero(t, p.stop())
		}
		restored := s.on(w.start("BROKER_RATIONAL_DELAY=500ms"))
		eventually(t, "the queue", func() bool {
			return len(restored.whyOf("k").Reasons) == 1 && restored.whyOf("k").Reasons[0].Code != string(why.QueueRestoring)
		})
	})
}

func TestFaultAFullStoreIsTold(t *testing.T) {
	parallel(t)
	s := embeddedWorld(t).start(envSize+"=4000000", "BROKER_NO_WORKER_AFTER=1s").stage(t)
	at := s.joined("k", "type", "pull")
	body := strings.Repeat("x", 20_000)
	first := s.publish("m")
	for n, status := 0, 201; status == 201; n++ {
		require.Less(t, n, 2000)
		r, err := s.try("POST", s.path("/broadcast"), body, producerTokens...)
		require.NoError(t, err)
		status = r.status
	}
	for _, path := range []string{at, s.jobAt(first, "k"), first} {
		s.awaitReason(path, why.StoreUnavailable)
	}
}

// While the store does not answer, why is answered from memory and Redis.
func TestFaultMySQLStandsStillAndWhyIsAnswered(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	p := w.start()
	p.sample("k", "paused")
	p.put("/channel/c", "ack", "journal", "latencyBudget", "1s")
	at := p.publish("m")
	s := &stage{process: p, channel: "c"}
	job := s.jobAt(at, "k")
	require.Equal(t, 200, p.do("POST", "/channel/c/consumer/paused/pause", "").status)
	s.awaitQueued("k", 1)
	w.mysql.Pause()
	receipt := p.later("m", "X-Broker-Message-ID", "late")
	for path, code := range map[string]why.Code{"/channel/c/consumer/k": why.StoreUnavailable, job: why.StoreUnavailable,
		at: why.StoreUnavailable, "/channel/c/message/late": why.AcceptedOnly,
		"/channel/c/message" + strings.TrimPrefix(receipt, "/receipt"): why.AcceptedOnly} {
		s.awaitReason(path, code)
	}
	require.Equal(t, string(why.StoreUnavailable), s.whyOf("paused").Reasons[0].Code)
	require.Equal(t, string(why.Paused), s.whyOf("paused").Reasons[1].Code, "what is in memory is still told")
	w.mysql.Resume()
	eventually(t, "the store", func() bool {
		return len(s.whyOf("k").Reasons) == 1 && len(s.why("/channel/c/message/late").Reasons) == 2
	})
}

// What the last attempt has shown is known to every broker, and no restart or lost Redis forgets it.
func TestFaultTheLastAttemptSurvivesARestartAndALostRedis(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		s := p.stage(t)
		at := s.joined("k", "callbackUrl", answering(t, 502), "backoff", "constant:1h")
		view := func(s *stage) map[string]any { return s.do("GET", at, "").json(t) }
		require.NotContains(t, view(s), "LastAttemptAt")
		s.publish("m")
		eventually(t, "the attempt", func() bool { return view(s)["LastAttemptAt"] != nil })
		seen := view(s)
		require.EqualValues(t, 502, seen["LastStatus"])
		require.Contains(t, seen["LastError"], "502")
		require.NotContains(t, seen, "LastSuccessAt")
		require.NotContains(t, seen, "HeldBy")
		if w.redis != nil {
			other := s.on(w.start())
			eventually(t, "the other broker", func() bool { return view(other)["LastAttemptAt"] == seen["LastAttemptAt"] })
		}
		require.Zero(t, p.stop())
		if w.redis != nil {
			w.flushall()
		}
		again := s.on(w.start())
		require.Equal(t, seen["LastAttemptAt"], view(again)["LastAttemptAt"])
		require.EqualValues(t, 502, view(again)["LastStatus"])
		again.awaitReason(at, why.EndpointFailing)
		again.put(at, "callbackUrl", answering(t, 204))
		require.False(t, hasCode(again.whyOf("k"), why.EndpointFailing), "it was another address")
		again.publish("m")
		eventually(t, "a success", func() bool { return view(again)["LastSuccessAt"] != nil })
		require.EqualValues(t, 204, view(again)["LastStatus"])
		require.NotContains(t, view(again), "LastError")
		again.accepted(at + "/pause")
		require.Equal(t, "paused", view(again)["HeldBy"])
		require.NotContains(t, view(again), "HeldUntil")
	})
}
