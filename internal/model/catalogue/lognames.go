package catalogue

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// loggedConsumer is the attribute of a log line that names a consumer. Its value is the number of the
// consumer: the line has the IDs of channel and consumer instead.
const loggedConsumer = "consumer"

// LogNames puts the IDs of channels and consumers into log lines. People know no numbers of consumers.
// The zero value knows none of them.
type LogNames struct{ of atomic.Pointer[Catalogue] }

// Set tells the catalogue that has the names.
func (n *LogNames) Set(c *Catalogue) { n.of.Store(c) }

// Handler returns a handler of lines, which it hands on to another one.
func (n *LogNames) Handler(to slog.Handler) slog.Handler { return namer{to, n} }

type namer struct {
	slog.Handler
	names *LogNames
}

// Handle implements slog.Handler. A line without the number of a consumer costs a look at its attributes.
func (h namer) Handle(ctx context.Context, r slog.Record) error {
	numbered := false
	r.Attrs(func(a slog.Attr) bool {
		numbered = isNumber(a)
		return !numbered
	})
	if !numbered {
		return h.Handler.Handle(ctx, r)
	}
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if isNumber(a) {
			named.AddAttrs(h.names.named(uint32(a.Value.Uint64()))...)
		} else {
			named.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, named)
}

// WithAttrs implements slog.Handler.
func (h namer) WithAttrs(attrs []slog.Attr) slog.Handler {
	return namer{h.Handler.WithAttrs(attrs), h.names}
}

// WithGroup implements slog.Handler.
func (h namer) WithGroup(name string) slog.Handler { return namer{h.Handler.WithGroup(name), h.names} }

func isNumber(a slog.Attr) bool { return a.Key == loggedConsumer && a.Value.Kind() == slog.KindUint64 }

// named returns the attributes of a consumer, or of a replay of one.
func (n *LogNames) named(no uint32) []slog.Attr {
	c := n.of.Load()
	if c == nil {
		return []slog.Attr{slog.String(loggedConsumer, "not known yet")}
	}
	k := c.ConsumerByNo(no)
	if k == nil {
		return []slog.Attr{slog.String(loggedConsumer, "not known")}
	}
	var attrs []slog.Attr
	if ch := c.ChannelByNo(k.ChannelNo); ch != nil {
		attrs = append(attrs, slog.String("channel", ch.ID))
	}
	attrs = append(attrs, slog.String(loggedConsumer, k.ID))
	if k.Replay != nil {
		attrs = append(attrs, slog.String("replay", k.Replay.ID()))
	}
	return attrs
}
