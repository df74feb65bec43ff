package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Growth says when dead letters grow: at least Jobs jobs of a consumer died within Window. The
// growth ends when none has died for Window.
type Growth struct {
	Jobs   int
	Window time.Duration
	Owns   func(no uint32) bool // whether this broker looks; nil: it does
}

const (
	// MaxGrowth is the largest Growth.Jobs. It bounds what one look at a consumer reads.
	MaxGrowth = 10_000
	// growthLeast is the number of dead letters of a consumer that are read at least: those of
	// its newest messages.
	growthLeast = 2000
	// growthPage is the number of consumers with dead letters that one round looks at.
	growthPage = 500
)

// A growthCheck looks at the consumers that have dead letters.
type growthCheck struct {
	*Alerts
	Growth
	after uint32 // the consumer that the last round ended with
}

// round looks at a page of consumers. Without dead letters it reads two empty tables.
func (g *growthCheck) round(ctx context.Context) (time.Duration, error) {
	pause := min(max(g.Window/10, 100*time.Millisecond), time.Minute)
	ch := g.o.Catalogue.Channel(ident.AlertsChannel)
	if ch == nil || g.Owns != nil && !g.Owns(ch.No) {
		return pause, nil
	}
	open, err := g.open(ctx)
	if err != nil {
		return pause, err
	}
	since := g.o.NowMs() - g.Window.Milliseconds()
	var growing []uint32
	for no := range open[durable.DLQGrowing] {
		growing = append(growing, no)
		reason, err := g.ended(ctx, no, since)
		if err == nil && reason != "" {
			err = g.close(ctx, durable.DLQGrowing, no, reason)
		}
		if err != nil {
			return pause, err
		}
	}
	return pause, g.look(ctx, growing, since)
}

// ended says why a growth is over; "": it is not.
func (g *growthCheck) ended(ctx context.Context, no uint32, since int64) (string, error) {
	if k := g.o.Catalogue.ConsumerByNo(no); k == nil || k.Deleted() {
		return "the consumer was deleted", nil
	}
	n, err := g.o.Store.DeadSince(ctx, no, since, g.scan())
	if err != nil || n > 0 {
		return "", err
	}
	return fmt.Sprintf("no job became a dead letter within %s", g.Window), nil
}

// scan is the number of dead letters that are read of one consumer.
func (g *growthCheck) scan() int { return max(growthLeast, 2*g.Jobs) }

// look looks at the next page of consumers, except those that grow.
func (g *growthCheck) look(ctx context.Context, growing []uint32, since int64) error {
	for range growthPage {
		no, err := g.o.Store.NextDeadConsumer(ctx, g.after)
		if err != nil {
			return err
		}
		g.after = no
		if no == 0 {
			return nil
		}
		if k := g.o.Catalogue.ConsumerByNo(no); slices.Contains(growing, no) || k == nil || k.Deleted() {
			continue
		}
		n, err := g.o.Store.DeadSince(ctx, no, since, g.scan())
		if err != nil {
			return err
		}
		if n < g.Jobs {
			continue
		}
		count := fmt.Sprint(n)
		if n == g.scan() {
			count = "at least " + count
		}
		reason := fmt.Sprintf("%s jobs became dead letters within %s", count, g.Window)
		if d, err := g.o.Store.NewestDead(ctx, no); err == nil {
			reason += "; that of the newest message: " + cause(&d)
		} else if !errors.Is(err, durable.ErrNotFound) {
			return err
		}
		if err := g.raise(ctx, durable.DLQGrowing, no, reason); err != nil {
			return err
		}
	}
	return nil
}

// cause says in words why a job died: the reason, the failure, and what a pull worker said besides.
func cause(d *durable.DeadJob) string {
	text := d.Reason.String()
	if d.Error != "" {
		text += ": " + d.Error
	}
	if d.StatusCode == 0 && len(d.Answer) > 0 {
		text += "; " + string(d.Answer)
	}
	return text
}
