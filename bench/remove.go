package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// removeWithin bounds the removal of what a run made, also after a signal.
const removeWithin = 20 * time.Second

// remove removes the producers, channels and consumers that were made in a broker that runs on. Of
// those that it cannot remove it says what they are, and which commands do.
func (b *Broker) remove(ctx context.Context, c *Config, out io.Writer) {
	var made []*subject
	for _, s := range b.made {
		if s.made > 0 {
			made = append(made, s)
		}
	}
	if len(made) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	ctl := NewControl(b.URL, c.AdminToken)
	defer ctl.Close()
	for i, s := range made {
		if err := s.remove(ctx, ctl); err != nil {
			fmt.Fprint(out, left(b.URL, c, made[i:], err))
			return
		}
	}
	fmt.Fprintf(out, "bench: the producers, channels and consumers of this run are removed; its messages stay until "+
		"retention removes them\n")
}

// left says what stays in the broker and how to remove it.
func left(base string, c *Config, made []*subject, err error) string {
	var names []string
	for _, s := range made {
		names = append(names, s.producer)
	}
	reason := err.Error()
	var refused statusError
	if errors.As(err, &refused) && refused.status == http.StatusMethodNotAllowed {
		reason = "it runs without BROKER_ALLOW_DELETE=true"
	}
	remove := "curl -sS -X DELETE "
	if c.AdminToken != "" {
		remove += `-H "X-Broker-Admin-Token: $TOKEN" `
	}
	var text strings.Builder
	fmt.Fprintf(&text, "bench: the broker keeps the producer, the %d channels and the %d consumers of each of %s, "+
		"because they could not be removed: %s.\n",
		c.Channels, c.Channels*c.consumersPerChannel(), strings.Join(names, " "), reason)
	fmt.Fprintf(&text, "Commands that remove them from a broker with BROKER_ALLOW_DELETE=true:\nfor n in %s; do\n  for "+
		"c in $(seq 0 %d); do\n", strings.Join(names, " "), c.Channels-1)
	if c.PushConsumers > 0 {
		fmt.Fprintf(&text, "    for k in $(seq 0 %d); do %s%s/channel/$n-$c/consumer/$n-$c-push-$k; done\n",
			c.PushConsumers-1, remove, base)
	}
	if c.PullWorkers > 0 {
		fmt.Fprintf(&text, "    %s%s/channel/$n-$c/consumer/$n-$c-pull\n", remove, base)
	}
	fmt.Fprintf(&text, "    %s%s/channel/$n-$c\n  done\n  %s%s/producer/$n\ndone\n", remove, base, remove, base)
	return text.String()
}
