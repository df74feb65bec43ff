package durable

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// What passes the check is stored, however much of it must be escaped.
func TestTheLargestPayloadThatPassesTheCheckIsStoredOnMySQL(t *testing.T) {
	server := servers.StartMySQL(t, "--max-allowed-packet=1M")
	s, err := OpenMySQL(t.Context(), server.DSN(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.CheckPayload(1))
	most := (1<<20 - overhead) / 2
	require.NoError(t, s.CheckPayload(most))
	require.ErrorContains(t, s.CheckPayload(most+1), "max_allowed_packet of 1048576")

	_, _, err = s.PutChannel(t.Context(), Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", 1<<40)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	escaped := func(n int) []byte { return bytes.Repeat([]byte{0, '\''}, n/2+1)[:n] }
	m := func(payload []byte) *Message {
		return &Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: strings.Repeat("k", 255),
			ContentType: strings.Repeat("'", 255),
			Headers:     escaped(math.MaxUint16), Payload: payload}
	}
	require.NoError(t, s.Insert(t.Context(), node, []*Message{m(escaped(most))})[0])
	err = s.Insert(t.Context(), node, []*Message{{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1,
		Payload: escaped(1 << 19)}})[0]
	require.ErrorIs(t, err, ErrRejected)

	embedded, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, embedded.Close()) }()
	require.NoError(t, embedded.CheckPayload(64<<20))
}
