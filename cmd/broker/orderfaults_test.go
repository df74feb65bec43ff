package main

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Three brokers deliver to one ordered consumer that fails a tenth of the attempts. Producers
// post the messages of a key one after the other, through all brokers in turn. Redis is emptied,
// and a broker is killed and started again. No key is out of order, and no two messages of a key
// are in flight together.
func TestOrderHoldsThroughALostRedisAndAKilledBroker(t *testing.T) {
	parallel(t)
	const keys, each = 24, 25
	w := realWorld(t)
	settings := []string{"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=2s"}
	var mu sync.Mutex
	brokers := []*process{w.start(settings...), w.start(settings...), w.start(settings...)}
	broker := func(i int) *process { mu.Lock(); defer mu.Unlock(); return brokers[i%len(brokers)] }
	sink := newOrderedSink(t, 0.1)
	s := brokers[0].stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true", "maxRetries", "1000", "backoff", "constant:20ms")
	var producers sync.WaitGroup
	for key := range keys {
		producers.Go(func() {
			name := fmt.Sprintf("key-%d", key)
			for n := range each {
				for try := 0; ; try++ { // a repeat with the same ID is stored once
					r, err := broker(key+n+try).try("POST", s.path("/broadcast"), fmt.Sprintf("%s %d", name, n), append([]string{
						"X-Broker-Ordering-Key", name, "X-Broker-Message-ID", fmt.Sprintf("%s.%d", name, n)}, producerTokens...)...)
					if err == nil && r.stored() {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	eventually(t, "a fifth of the deliveries", func() bool { return sink.delivered() > keys*each/5 })
	w.flushall()
	eventually(t, "half of the deliveries", func() bool { return sink.delivered() > keys*each/2 })
	broker(2).kill()
	again := w.start(settings...)
	mu.Lock()
	brokers[2] = again
	mu.Unlock()
	producers.Wait()
	eventually(t, "all deliveries", func() bool { return sink.delivered() == keys*each })
	sink.require(t, keys, each)
}
