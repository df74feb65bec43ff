package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// otherTerms are edits that make a message with terms one with others.
var otherTerms = map[string]func(m *durable.Message){
	"another TTL":           func(m *durable.Message) { m.TTLMs++ },
	"no TTL":                func(m *durable.Message) { m.TTLMs = 0 },
	"other addressees":      func(m *durable.Message) { m.Addressed = positions(1) },
	"more addressees":       func(m *durable.Message) { m.Addressed = positions(0, 1) },
	"all addressees":        func(m *durable.Message) { m.Addressed = "" },
	"another ordering key":  func(m *durable.Message) { m.Headers = durable.OrderingLine("o2", m.Metadata()) },
	"no ordering key":       func(m *durable.Message) { m.Headers = m.Metadata() },
	"none of all the terms": func(m *durable.Message) { m.Headers, m.TTLMs, m.Addressed = m.Metadata(), 0, "" },
}

// identities make the two messages of one identity, with the error of those that are another message.
var identities = map[string]struct {
	of      func(f *fixture, ch durable.Channel, id string) *durable.Message
	refusal error
}{
	"a message ID": {func(f *fixture, ch durable.Channel, id string) *durable.Message {
		m := f.message(ch)
		m.Key = id
		return m
	}, durable.ErrConflict},
	"a message ID of its producer": {func(f *fixture, ch durable.Channel, id string) *durable.Message {
		m := f.message(ch)
		m.Key = durable.ProducerKey(m.ProducerNo, id)
		return m
	}, durable.ErrConflict},
	"an idempotency key": {func(f *fixture, ch durable.Channel, id string) *durable.Message {
		return f.keyed(ch, id, "one")
	}, durable.ErrReused},
	"an event": {func(f *fixture, ch durable.Channel, id string) *durable.Message {
		return f.event(ch, id, `{"a":1}`, true)
	}, durable.ErrConflict},
}

// eachIdentity calls test for each kind of identity. with returns a message of it with terms.
func eachIdentity(t *testing.T, f *fixture, test func(t *testing.T, with func(id string) *durable.Message,
	ch durable.Channel, refusal error)) {
	for name, kind := range identities {
		t.Run(name, func(t *testing.T) {
			ch, _ := f.channel(t, name[2:5]+name[len(name)-3:], 3)
			test(t, func(id string) *durable.Message {
				m := kind.of(f, ch, id)
				m.TTLMs, m.Addressed, m.Headers = 60_000, positions(0), durable.OrderingLine("o", m.Headers)
				return m
			}, ch, kind.refusal)
		})
	}
}

var termsTests = map[string]func(*testing.T, *fixture){
	"a repeat with other terms is another message, alone and in a batch": func(t *testing.T, f *fixture) {
		eachIdentity(t, f, func(t *testing.T, with func(string) *durable.Message, _ durable.Channel, refusal error) {
			first := with("k")
			f.insert(t, first)
			batch := []*durable.Message{with("k")}
			for name, change := range otherTerms {
				m := with("k")
				change(m)
				require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], refusal, name)
				batch = append(batch, m, with("k"))
			}
			for i, err := range f.insertFresh(t, batch) {
				if i%2 == 0 {
					requireDuplicate(t, err, first.ID)
				} else {
					require.ErrorIs(t, err, refusal)
				}
			}
			fresh := []*durable.Message{with("l"), with("l")}
			for _, change := range otherTerms {
				m := with("l")
				change(m)
				fresh = append(fresh, m)
			}
			for i, err := range f.Insert(f.ctx, f.node, fresh) {
				switch i {
				case 0:
					require.NoError(t, err)
				case 1:
					requireDuplicate(t, err, fresh[0].ID)
				default:
					require.ErrorIs(t, err, refusal)
				}
			}
			require.Len(t, f.stored(t, append(append(batch, fresh...), first)), 2)
		})
	},
	"a repeat with terms of a message without is another message": func(t *testing.T, f *fixture) {
		eachIdentity(t, f, func(t *testing.T, with func(string) *durable.Message, _ durable.Channel, refusal error) {
			plain := func() *durable.Message {
				m := with("k")
				otherTerms["none of all the terms"](m)
				return m
			}
			first := plain()
			f.insert(t, first)
			requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{plain()})[0], first.ID)
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{with("k")})[0], refusal)
		})
	},
	"the same message may be inserted again under its ID, with its terms": func(t *testing.T, f *fixture) {
		eachIdentity(t, f, func(t *testing.T, with func(string) *durable.Message, _ durable.Channel, _ error) {
			m := with("k")
			f.insert(t, m)
			f.insert(t, m)
		})
	},
	"a repeat of a step and of a schedule has the same terms": func(t *testing.T, f *fixture) {
		eachIdentity(t, f, func(t *testing.T, with func(string) *durable.Message, ch durable.Channel, refusal error) {
			later := f.ids.Next().Millis() + time.Hour.Milliseconds()
			plan := func() *durable.Scheduled { return &durable.Scheduled{Message: *with("s"), DueMs: later} }
			first := plan()
			f.schedule(t, first)
			requireDuplicate(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{plan()})[0], first.ID)
			stored := with("m")
			f.insert(t, stored)
			b := f.newBulk(t, ch, "body")
			s := f.step(ch, b, 0, "", "")
			var others []*durable.Scheduled
			for name, change := range otherTerms {
				m, p := with("m"), plan()
				change(m)
				change(&p.Message)
				require.ErrorIs(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{p})[0], refusal, name)
				m.ID = f.ids.Next()
				s.Messages, others = append(s.Messages, m), append(others, p)
			}
			s.Messages, s.Later = append(s.Messages, with("m")), append(others, plan())
			s.Rows = nil
			for i := range len(s.Messages) + len(s.Later) {
				s.Rows = append(s.Rows, int64(i)+1)
			}
			s.To.Row = int64(len(s.Rows))
			f.run(t, s)
			n := len(s.Messages)
			requireDuplicate(t, s.Results[n-1], stored.ID)
			requireDuplicate(t, s.Results[len(s.Results)-1], first.ID)
			for i, err := range s.Results[2 : len(s.Results)-1] {
				if i+2 != n-1 {
					require.ErrorIs(t, err, refusal)
				}
			}
		})
	},
	"addressees are the same where others have their IDs by now": func(t *testing.T, f *fixture) {
		eachIdentity(t, f, func(t *testing.T, with func(string) *durable.Message, ch durable.Channel, refusal error) {
			first := with("k")
			f.insert(t, first)
			_, err := f.DeleteConsumer(f.ctx, ch.ID, durable.Put{ID: "k0"})
			require.NoError(t, err)
			again, _, err := f.PutConsumer(f.ctx, consumerPut(ch.ID, "k0"))
			require.NoError(t, err)
			m := with("k")
			m.Addressed = positions(again.Position)
			requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], first.ID)
			m = with("k")
			m.Addressed = positions(again.Position, 1)
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], refusal)
		})
	},
	"the terms of an idempotency key outlive its message": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		first, other := f.keyed(ch, "k", "one"), f.keyed(ch, "k", "one")
		f.insert(t, first)
		f.end(t, ks[0], durable.OutcomeDelivered, first)
		_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: first.ID, Limit: 10})
		require.NoError(t, err)
		require.Empty(t, f.stored(t, []*durable.Message{first}))
		other.TTLMs = 1000
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{other})[0], durable.ErrReused)
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "one")})[0], first.ID)
	},
}
