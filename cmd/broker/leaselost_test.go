package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A claim that waits for the end of a lease is told that it was lost, however soon after it the job comes.
func TestAClaimKnowsOfTheLeaseThatHasJustEnded(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		p.put("/producer/shop", "token", "p")
		p.put("/channel/orders", "token", "c")
		const consumers = 24
		for n := range consumers {
			p.put(fmt.Sprintf("/channel/orders/consumer/k-%d", n), "token", "k", "type", "pull")
		}
		require.Equal(t, 201, p.do("POST", "/channel/orders/broadcast", "x", "X-Broker-Channel-Token", "c",
			"X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token", "p").status)
		lost := make([]string, consumers)
		var all sync.WaitGroup
		for n := range consumers {
			all.Go(func() {
				claim := func(query string) string { // until there is a job
					for {
						r, err := p.ask("POST", fmt.Sprintf("/channel/orders/consumer/k-%d/claim?limit=1&wait=20s%s", n, query), "",
							"X-Broker-Channel-Token", "c", "X-Broker-Consumer-Token", "k")
						if err != nil {
							return err.Error()
						}
						if !strings.HasPrefix(r.body, `{"Result":[]`) {
							return r.body
						}
					}
				}
				claim("&timeout=1") // and this worker dies
				lost[n] = claim("")
			})
		}
		all.Wait()
		for _, answer := range lost {
			counts := regexp.MustCompile(`"Attempt":(\d+),"LeasesLost":(\d+)`).FindStringSubmatch(answer)
			require.NotNil(t, counts, answer)
			attempt, err := strconv.Atoi(counts[1])
			require.NoError(t, err)
			require.GreaterOrEqual(t, attempt, 2) // more where the first lease ended before its answer came
			require.Equal(t, strconv.Itoa(attempt-1), counts[2], answer)
		}
	})
}
