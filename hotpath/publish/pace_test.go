package publish

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// A batch may pause between lines, but a line that has begun comes at the least rate.
func TestALineThatHasBegunComesAtTheLeastRate(t *testing.T) {
	b := Body{}
	about := func(want time.Duration) {
		t.Helper()
		require.WithinDuration(t, time.Now().Add(want), b.due(), time.Second)
	}
	about(batchIdle)
	b.came([]byte("{\"Payload\":\"a\"}\n"))
	about(batchIdle)
	b.came([]byte("{\"Payload\":"))
	b.begun = b.begun.Add(-20 * time.Second)
	about(intake.Patience - 20*time.Second)
	b.came([]byte("x"))
	about(intake.Patience - 20*time.Second)
	b.came([]byte("\"}\n{"))
	about(intake.Patience)
}

// The body of a bulk has a least rate from its beginning on.
func TestTheBodyOfABulkComesAtTheLeastRate(t *testing.T) {
	b := Body{whole: true, begun: time.Now().Add(-25 * time.Second)}
	for range 20 { // a byte and a line at a time
		b.came([]byte("\n"))
	}
	require.WithinDuration(t, time.Now().Add(5*time.Second), b.due(), time.Second)
}

// The time between two reads, in which the broker waits for its store, is not the client's.
func TestTheRateOfABodyCountsNoTimeOfTheBroker(t *testing.T) {
	for _, whole := range []bool{false, true} {
		b := Body{from: strings.NewReader("{x"), wire: newWire(t.Context(), nil), length: 2, whole: whole, begun: time.Now()}
		_, err := b.Read(make([]byte, 1))
		require.NoError(t, err)
		b.begun, b.left = b.begun.Add(-time.Minute), b.left.Add(-time.Minute) // a minute passes
		_, err = b.Read(make([]byte, 1))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(intake.Patience), b.due(), 5*time.Second, "whole: %v", whole)
	}
}

func TestABodyThatIsEndedIsNotReadOn(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	b := Body{from: here, wire: newWire(t.Context(), here), length: 10}
	read := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		read <- err
	}()
	b.End()
	require.Error(t, <-read)
	_, err := b.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestAListHasABoundedNumberOfNames(t *testing.T) {
	line := []byte(`{"Payload":"p","Consumers":["a"`)
	for range mostNames {
		line = append(line, `,"a"`...)
	}
	require.ErrorIs(t, new(Draft).line(append(line, `]}`...)), errManyConsumers)
	names := namesIn(nil, string(make([]byte, 0))+repeatedName(2*mostNames))
	require.Len(t, names, mostNames+1)
}

func repeatedName(n int) string {
	list := make([]byte, 0, 2*n)
	for range n {
		list = append(list, "a,"...)
	}
	return string(list)
}
