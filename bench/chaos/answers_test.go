//go:build unix

package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// responded makes consumer 0 one that responds, with a reply to message 1 that the producer took.
func (c story) responded() {
	c.Plan.Consumers[0].Does = responding
	answer := hashOf(answerTo(c.Plan.Consumers[0].ID, 1))
	c.Exchanges = map[exchangeKey]Exchange{{0, idNo(1)}: {State: durable.ResponseDelivered, Body: answer}}
	c.Replies = []Reply{{Seq: 1, Consumer: c.Plan.Consumers[0].ID, Hash: answer, Message: idNo(1).String(), Taken: true,
		At: at(1.5)}}
}

func TestEachResponseIsLookedFor(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c story)
		broken string
	}{
		"all went well":                 {func(story) {}, ""},
		"the response is lost":          {func(c story) { clear(c.Exchanges) }, "lost"},
		"the producer never took it":    {func(c story) { c.Replies[0].Taken = false }, "lost"},
		"it is another one":             {func(c story) { c.Replies[0].Hash = "other" }, "corrupted"},
		"another one is stored":         {func(c story) { c.stands(durable.ResponseDelivered, "other") }, "corrupted"},
		"it is that of another message": {func(c story) { c.Replies[0].Message = "other" }, "corrupted"},
		"it waits":                      {func(c story) { c.stands(durable.ResponseReceived, c.Replies[0].Hash) }, "stuck"},
		"it failed, and was taken":      {func(c story) { c.stands(durable.ExchangeFailed, "") }, "stuck"},
		"the consumer never took it": {func(c story) {
			c.unanswered(0, 1)
			clear(c.Exchanges)
			c.Jobs[0] = Outcomes{Delivered: map[ident.ID]bool{}, Dead: map[ident.ID]bool{idNo(1): true},
				Listed: map[ident.ID]bool{idNo(1): true}}
			c.Replies = nil
		}, ""},
		"nobody asked for it":   {func(c story) { c.Replies[0].Seq = 7 }, "phantoms"},
		"it is that of another": {func(c story) { c.Replies[0].Consumer = c.Plan.Consumers[1].ID }, "phantoms"},
		"it came twice without a fault": {func(c story) { c.Replies = append(c.Replies, c.Replies[0]) },
			"unexplained duplicates"},
		"it came twice by a fault": {func(c story) {
			c.Replies = append(c.Replies, c.Replies[0])
			c.fault(kill, 1.05, 1.2)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCase(1)
			c.responded()
			test.change(c)
			v := Check(c.Evidence)
			if test.broken == "" {
				require.True(t, v.OK(), v.Samples)
				return
			}
			require.Positive(t, v.Violations[test.broken], v.Violations)
		})
	}
}

// stands sets the row of the exchange.
func (c story) stands(state durable.ExchangeState, body string) {
	c.Exchanges[exchangeKey{0, idNo(1)}] = Exchange{State: state, Body: body}
}

func TestEachReplayIsLookedFor(t *testing.T) {
	for name, test := range map[string]struct {
		replay Replay
		copies []Copy
		broken string
	}{
		"all went well":         {Replay{7, durable.ReplayDone, 1, 0}, []Copy{{7, 1, "hash"}}, ""},
		"it has not ended":      {Replay{7, durable.ReplayRunning, 1, 0}, []Copy{{7, 1, "hash"}}, "stuck"},
		"a copy is missing":     {Replay{7, durable.ReplayDone, 2, 0}, []Copy{{7, 1, "hash"}}, "lost"},
		"a copy is not counted": {Replay{7, durable.ReplayDone, 0, 0}, []Copy{{7, 1, "hash"}}, "counter mismatches"},
		"a copy is dead, too":   {Replay{7, durable.ReplayDone, 0, 1}, []Copy{{7, 1, "hash"}}, ""},
		"a copy is another one": {Replay{7, durable.ReplayDone, 1, 0}, []Copy{{7, 1, "other"}}, "corrupted"},
		"a copy came twice": {Replay{7, durable.ReplayDone, 1, 0}, []Copy{{7, 1, "hash"}, {7, 1, "hash"}},
			"unexplained duplicates"},
		"its message is unknown": {Replay{7, durable.ReplayDone, 1, 0}, []Copy{{7, 9, "hash"}}, "corrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCase(1)
			c.Replays, c.Copies = []Replay{test.replay}, test.copies
			v := Check(c.Evidence)
			if test.broken == "" {
				require.True(t, v.OK(), v.Samples)
				return
			}
			require.Positive(t, v.Violations[test.broken], v.Violations)
		})
	}
}
