package publish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func TestPriorityIsAnIntegerFrom0To1023(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0": 0, "7": 7, "1023": 1023, "0005": 5} {
		got, err := parsePriority([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"1024", "-1", "+1", "1.5", " 1", "abc", "99999999999999999999", "0x10", "00001"} {
		_, err := parsePriority([]byte(text))
		require.Equal(t, 400, problem.From(err).Status, text)
	}
}

func TestAMessageIsKnownOutsideByTheProducersID(t *testing.T) {
	m := &durable.Message{ID: ident.AtMillis(1)}
	require.Equal(t, "/channel/c/message/"+m.ID.String(), string(appendMessageURL(nil, "c", m)))
	m.Key = "order-1"
	require.Equal(t, "/channel/c/message/order-1", string(appendMessageURL(nil, "c", m)))
}

func TestAMemberThatALineDoesNotHaveLeadsToTheNearestOne(t *testing.T) {
	for name, meant := range map[string]string{"payload": "Payload", "Consumer": "Consumers", "priority": "Priority",
		"ScheduleFor": "ScheduledFor", "Header": "Headers"} {
		var l Draft
		err := l.line([]byte(`{"` + name + `":"1"}`))
		require.ErrorContains(t, err, `"`+name+`". Did you mean `+meant+`?`)
	}
	var l Draft
	require.NotContains(t, l.line([]byte(`{"surprise":"1"}`)).Error(), "Did you mean")
}
