package catalogue

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A line of the log names channel and consumer by the IDs that people know, whoever knows the number only.
func TestALineOfTheLogHasTheIDsOfAConsumerAndNotItsNumber(t *testing.T) {
	var text bytes.Buffer
	var names LogNames
	log := slog.New(names.Handler(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	said := func(log func(msg string, args ...any), args ...any) string {
		text.Reset()
		log("x", args...)
		return text.String()
	}
	require.Equal(t, "level=INFO msg=x consumer=\"not known yet\" jobs=3\n",
		said(log.Info, "consumer", uint32(7), "jobs", 3))
	c := New(nil, slog.New(slog.DiscardHandler))
	names.Set(c)
	require.Equal(t, "level=WARN msg=x consumer=\"not known\"\n", said(log.Warn, "consumer", uint32(7)))
	ch := &Channel{Channel: durable.Channel{No: 2, ID: "orders"}}
	k := &durable.Consumer{No: 7, ID: "billing", ChannelNo: 2}
	c.byChannel[2], c.byConsumer[7] = ch, k
	require.Equal(t, "level=DEBUG msg=x channel=orders consumer=billing job=j\n",
		said(log.Debug, "consumer", uint32(7), "job", "j"))
	require.Equal(t, "level=INFO msg=x request_id=r channel=orders consumer=billing\n",
		said(log.With("request_id", "r").Info, "consumer", k.No))
	require.Equal(t, "level=INFO msg=x channel=a consumer=b\n", said(log.Info, "channel", "a", "consumer", "b"))
	require.Equal(t, "level=INFO msg=x node=7\n", said(log.Info, "node", uint32(7)))
	k.Replay = &durable.Replay{No: 7}
	require.Contains(t, said(log.Info, "consumer", k.No), " consumer=billing replay="+k.Replay.ID())
}
