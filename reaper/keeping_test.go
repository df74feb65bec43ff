package reaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// An elder has a clock that is so far ahead that each message is older than the shortest time for which one
// is kept.
type elder struct{ *rig }

func (e elder) NowMs() int64   { return time.Now().Add(2 * time.Minute).UnixMilli() }
func (e elder) PastMs() int64  { return e.NowMs() }
func (e elder) FloorMs() int64 { return e.NowMs() }

// newLimited has a purger of an installation without retention, and a channel with the fields.
func newLimited(t *testing.T, fields ...string) (*rig, *purger) {
	t.Helper()
	r := newRig(t, 100, nil)
	r.Cluster = elder{r}
	r.limit(fields...)
	return r, newPurger(r.Reaper)
}

// limit sets fields of the channel: names and values.
func (r *rig) limit(fields ...string) {
	r.t.Helper()
	form := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		form[fields[i]] = fields[i+1]
	}
	merge := func(record string) (string, error) { return policy.MergeIntake(record, form) }
	_, _, err := r.store.PutChannel(r.t.Context(), durable.Put{ID: "c", Intake: merge})
	require.NoError(r.t, err)
	require.NoError(r.t, r.catalogue.Refresh(r.t.Context()))
}

// leftOf returns which of the messages are stored, by their index.
func (r *rig) leftOf(ids []ident.ID) (left []int) {
	r.t.Helper()
	for i, id := range ids {
		if r.left([]ident.ID{id}) == 1 {
			left = append(left, i)
		}
	}
	return left
}

func TestAChannelKeepsItsNewestMessagesAndThoseThatAreOpen(t *testing.T) {
	for field, c := range map[string]struct {
		value string
		by    durable.Limit
	}{
		"retentionMessages": {"3", durable.MessagesLimit},
		"retentionBytes":    {"3", durable.BytesLimit}, // each has a byte
	} {
		t.Run(field, func(t *testing.T) {
			r, p := newLimited(t, field, c.value)
			ids := r.publish(0, 0, 0, 0, 0, 0)
			r.deliver(ids[0], ids[2], ids[4])
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, []int{1, 3, 4, 5}, r.leftOf(ids), "an open one stays")
			removal, err := r.store.Removal(t.Context(), r.channel.No)
			require.NoError(t, err)
			require.Equal(t, ids[2], removal.Through)
			require.Equal(t, c.by, removal.By)
			require.EqualValues(t, 2, removal.Messages)
			require.InDelta(t, 2, r.metric("penstock_limited_messages_total"), 0)

			r.deliver(ids[1])
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, []int{1, 3, 4, 5}, r.leftOf(ids), "the scan is past it")
			p.limited[r.channel.No].began = time.Time{}
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, []int{3, 4, 5}, r.leftOf(ids), "it begins again now and then")

			more := r.publish(0, 0)
			r.deliver(append(more, ids[3])...)
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, []int{5}, r.leftOf(ids), "two of these are too many now")
			r.deliver(ids[5])
			r.limit(field, "")
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, 3, r.left(append(more, ids...)), "without a limit nothing goes")
		})
	}
}

func TestNothingThatIsYoungIsRemovedByALimit(t *testing.T) {
	r, p := newLimited(t, "retentionMessages", "1", "retention", "1m")
	p.Cluster = r // a minute ahead: a second less than the shortest time
	ids := r.publish(0, 0, 0)
	r.deliver(ids...)
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, 3, r.left(ids))
	p.Cluster = elder{r}
	require.NoError(t, p.round(t.Context()))
	require.Zero(t, r.left(ids), "they are past the age")
	removal, err := r.store.Removal(t.Context(), r.channel.No)
	require.NoError(t, err)
	require.Equal(t, durable.AgeLimit, removal.By)
}

func TestTheAgesOfAChannelAreItsOwn(t *testing.T) {
	for _, c := range []struct {
		installation, dead time.Duration
		fields             []string
		left               []int // of a delivered message and a dead letter
	}{
		{0, 0, nil, []int{0, 1}},
		{time.Minute, 0, nil, []int{1}},
		{time.Minute, time.Minute, nil, nil},
		{time.Minute, time.Minute, []string{"retention", "0"}, []int{0, 1}},
		{time.Minute, time.Minute, []string{"retention", "1h"}, []int{0, 1}},
		{time.Minute, time.Minute, []string{"deadRetention", "0"}, []int{1}},
		{time.Minute, time.Minute, []string{"deadRetention", "1h"}, []int{1}},
		{0, 0, []string{"retention", "1m"}, []int{1}},
		{0, 0, []string{"retention", "1m", "deadRetention", "1m"}, nil},
		{0, 0, []string{"deadRetention", "1m"}, []int{0, 1}},
	} {
		t.Run(fmt.Sprint(c.installation, c.dead, c.fields), func(t *testing.T) {
			r, p := newLimited(t, c.fields...)
			p.Retention, p.DeadRetention = c.installation, c.dead
			ids := r.publish(0, 0)
			r.deliver(ids[0])
			require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: durable.OutcomeDead,
				ConsumerNo: r.consumer.No, ID: ids[1], Attempts: 2, AtMs: time.Now().UnixMilli()}}))
			require.Equal(t, c.installation > 0 || c.fields != nil, p.limits(), "a round is needed")
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, c.left, r.leftOf(ids))
		})
	}
}

// Stretches that are longer than a page are kept or removed as wholes, and those before them are forgotten.
func TestALimitIsFoundInTheCountsOfAnyLength(t *testing.T) {
	const page = countPage
	for _, c := range []struct {
		messages int64
		counted  []int64
		kept     int64 // newest messages
	}{
		{messages: page, counted: []int64{page, page, page}, kept: page},
		{messages: page + 10, counted: []int64{page, page, page}, kept: page + 10},
		{messages: 2*page - 1, counted: []int64{page, page, page}, kept: 2*page - 1},
		{messages: 3 * page, counted: []int64{page, page, page}, kept: 3 * page},
		{messages: 10, counted: []int64{page, page, page}, kept: 10},
	} {
		t.Run(fmt.Sprint(c.messages, c.counted), func(t *testing.T) {
			room, kept := budget{messages: c.messages}, int64(0)
			for i := len(c.counted) - 1; i >= 0; i-- {
				s := durable.Stretch{Messages: c.counted[i], Bytes: 5}
				if room.takes(s) {
					kept += s.Messages
					continue
				}
				for room.takes(durable.Stretch{Messages: 1}) {
					kept++
				}
				break
			}
			require.Equal(t, c.kept, kept)
		})
	}
	both := budget{messages: 5, bytes: 7}
	require.True(t, both.takes(durable.Stretch{Messages: 2, Bytes: 7}))
	require.Equal(t, durable.BytesLimit, both.missing(durable.Stretch{Messages: 1, Bytes: 1}))
	require.Equal(t, durable.MessagesLimit, both.missing(durable.Stretch{Messages: 4, Bytes: 1}))
	require.False(t, both.full(durable.Stretch{Messages: countPage - 1}))
	require.True(t, both.full(durable.Stretch{Messages: countPage}))
	large := budget{messages: 10 * countPage * stretchesKept}
	require.False(t, large.full(durable.Stretch{Messages: 10*countPage - 1}))
	require.True(t, large.full(durable.Stretch{Messages: 10 * countPage}))
}
