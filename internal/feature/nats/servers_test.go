package nats

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// stored is the answer of a stranger that acknowledges each message.
func stored(inbox string) string {
	return "MSG " + inbox + " 1 22\r\n" + `{"stream":"S","seq":1}` + "\r\n"
}

// Of more servers than there are connections the one whose connection rests longest loses it. Where all are in
// use, an attempt waits as long as it has time, and its job goes back to the queue.
func TestServersBeyondTheBoundWait(t *testing.T) {
	client := egress.NewClient(egress.Options{})
	s := New(patient(client))
	defer func() { client.Close(); s.Close() }()
	s.servers.places = share.New(share.Options{Name: "test", Most: 2})
	life, endDeaf := context.WithCancel(t.Context())
	sendIn := func(life context.Context, server *stranger, within time.Duration) egress.Result {
		target, err := s.Row().Target(egress.ToConsumers, "nats://"+server.addr+"/a", "")
		require.NoError(t, err)
		return target.Send(life, push.Attempt{Message: &durable.Message{}, Consumer: &durable.Consumer{},
			Policy: &policy.Policy{}}, time.Now().Add(within))
	}
	send := func(server *stranger, within time.Duration) egress.Result { return sendIn(t.Context(), server, within) }
	var quick [3]*stranger
	for i := range quick {
		quick[i] = &stranger{first: aServer, welcome: "PONG\r\n", reply: stored}
		quick[i].serve(t)
		require.Equal(t, 200, send(quick[i], 2*time.Minute).Status)
		require.LessOrEqual(t, s.servers.places.Taken(), int64(2))
	}
	require.Equal(t, 200, send(quick[0], 2*time.Minute).Status, "over a new connection")

	var wg sync.WaitGroup
	for range 2 {
		deaf := &stranger{first: aServer, welcome: "PONG\r\n"}
		deaf.serve(t)
		wg.Go(func() { sendIn(life, deaf, time.Hour) })
		for line := range deaf.got {
			if line[0] == 'H' { // HPUB: its connection is in use
				break
			}
		}
	}
	res := send(quick[0], 100*time.Millisecond)
	require.ErrorIs(t, res.Err, errPlaces)
	require.True(t, res.Local, "it counts as no attempt")
	waiting := &stranger{first: aServer, welcome: "PONG\r\n", reply: stored}
	waiting.serve(t)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if res := send(waiting, 2*time.Minute); res.Status != 200 {
				t.Errorf("an attempt that waited: %+v", res)
			}
		})
	}
	require.Eventually(t, func() bool { return s.servers.wanted.Load() == 1 }, time.Minute, time.Millisecond,
		"for one server, however many wait")
	endDeaf()
	wg.Wait()
	all.Wait()
	require.Equal(t, 200, send(quick[0], 2*time.Minute).Status, "when the others are over")
	logins := 0
	for len(waiting.got) > 0 {
		if line := <-waiting.got; line == "PING" {
			logins++
		}
	}
	require.Equal(t, 1, logins, "all use the connection that was made for one")
}

// A server that announces its stop gets the acknowledgements that it owes, and no further message.
func TestAServerThatStopsIsLeft(t *testing.T) {
	stopping := &stranger{first: aServer, welcome: "PONG\r\n", reply: func(inbox string) string {
		return `INFO {"headers":true,"max_payload":9999,"ldm":true}` + "\r\n" + stored(inbox)
	}}
	stopping.serve(t)
	client := egress.NewClient(egress.Options{})
	s := New(patient(client))
	defer func() { client.Close(); s.Close() }()
	target, err := s.Row().Target(egress.ToConsumers, "nats://"+stopping.addr+"/a", "")
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, 200, target.Send(t.Context(), push.Attempt{Message: &durable.Message{},
			Consumer: &durable.Consumer{}, Policy: &policy.Policy{}}, time.Now().Add(2*time.Minute)).Status)
	}
	logins := 0
	for len(stopping.got) > 0 {
		if line := <-stopping.got; line == "PING" {
			logins++
		}
	}
	require.Equal(t, 3, logins)
}
