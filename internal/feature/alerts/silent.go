package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

const (
	// mostRead is the number of channels whose newest message one round reads. The next round goes on after
	// them.
	mostRead = 500
	// known is the longest age of the newest message that is known for which the store is not asked again.
	known = time.Minute
)

// silence looks at the channels in which messages are expected: expectEvery. Silence counts from the newest
// message, but not from before the rhythm of the channel, see durable.Rhythm.
func (w *watch) silence(ctx context.Context, open map[uint32]int64) error {
	expecting := w.expecting()
	if len(expecting) == 0 && len(open) == 0 && len(w.newest) == 0 {
		return nil
	}
	rows, err := w.o.Store.Rhythms(ctx)
	if err != nil {
		return err
	}
	since := map[uint32]int64{}
	for _, r := range rows {
		since[r.ChannelNo] = r.SinceMs
		if !expects(w.o.Catalogue.ChannelByNo(r.ChannelNo)) {
			delete(w.newest, r.ChannelNo)
			if err := w.o.Store.ForgetRhythm(ctx, r.ChannelNo); err != nil {
				return err
			}
		}
	}
	for no := range open {
		if ch := w.o.Catalogue.ChannelByNo(no); !expects(ch) || ch.Closed() {
			if err := w.close(ctx, durable.ChannelSilent, no, unexpected(ch)); err != nil {
				return err
			}
		}
	}
	reads := 0
	for _, ch := range expecting {
		if ch.Closed() {
			continue
		}
		if reads >= mostRead {
			break
		}
		read, err := w.listen(ctx, ch, since, open)
		if err != nil {
			return err
		}
		if read {
			w.read = ch.No
			reads++
		}
	}
	return nil
}

// expecting returns the channels in which messages are expected, those after the last one that was read first.
func (w *watch) expecting() (out []*catalogue.Channel) {
	for _, ch := range w.o.Catalogue.Channels("", math.MaxInt32) {
		if expects(ch) {
			out = append(out, ch)
		}
	}
	slices.SortFunc(out, func(a, b *catalogue.Channel) int { return cmp.Compare(a.No-w.read-1, b.No-w.read-1) })
	return out
}

func expects(ch *catalogue.Channel) bool {
	return ch != nil && !ch.Deleted && ch.Intake.ExpectEvery > 0
}

// unexpected says why no message is expected in a channel.
func unexpected(ch *catalogue.Channel) string {
	switch {
	case ch == nil || ch.Deleted:
		return "the channel was deleted"
	case ch.Closed():
		return "the channel is paused"
	}
	return "messages are not expected (expectEvery) any more"
}

// listen looks at one channel, and reports whether it asked the store for the newest message.
func (w *watch) listen(ctx context.Context, ch *catalogue.Channel, since, open map[uint32]int64) (read bool,
	err error) {
	now, every := w.o.NowMs(), ch.Intake.ExpectEvery
	from, kept := since[ch.No]
	_, silent := open[ch.No]
	last := max(from, w.newest[ch.No])
	if !kept || silent || now-last >= min(every, known).Milliseconds() {
		read = true
		if last, err = w.hear(ctx, ch, from, kept, now); err != nil {
			return read, err
		}
	}
	quiet := time.Duration(now-last) * time.Millisecond
	at := time.UnixMilli(last).UTC().Format(time.RFC3339)
	switch {
	case quiet >= every && !silent:
		return read, w.raise(ctx, durable.ChannelSilent, ch.No, fmt.Sprintf("no message was stored for %s, since %s; "+
			"one is expected every %s", age(quiet), at, policy.Short(every)))
	case quiet < every && silent:
		reason := fmt.Sprintf("the channel has been silent for %s", age(quiet))
		if w.newest[ch.No] > open[ch.No] {
			reason = "a message was stored at " + at
		}
		return read, w.close(ctx, durable.ChannelSilent, ch.No, reason+"; one is expected every "+policy.Short(every))
	}
	return read, nil
}

// hear reads the newest message of a channel, and returns from when on silence counts. The first look at a
// channel stores that, and so does each one where retention may remove the newest message before silence is an
// alarm. A crash before that leaves a channel at which another broker looks for the first time.
func (w *watch) hear(ctx context.Context, ch *catalogue.Channel, from int64, kept bool, now int64) (int64, error) {
	id, err := w.o.Store.NewestMessage(ctx, ch.No)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		if kept {
			return max(from, w.newest[ch.No]), nil
		}
		from = now
	case err != nil:
		return 0, err
	default:
		w.newest[ch.No] = id.Millis()
		if kept && id.Millis() <= from {
			return from, nil
		}
		from = max(from, id.Millis())
	}
	own := &ch.Intake.Keeping
	retention := own.Retention.Or(w.Retention)
	if !kept || own.Sized() || retention > 0 && ch.Intake.ExpectEvery >= retention/2 {
		err = w.o.Store.KeepRhythm(ctx, durable.Rhythm{ChannelNo: ch.No, SinceMs: from})
		return from, err
	}
	return from, nil
}
