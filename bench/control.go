package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Control speaks with the control plane of a broker: slow, rich, before and
// after a measurement.
type Control struct {
	client *penstock.Client
	wrong  error // the URL is none
}

// NewControl returns a client for the broker at base, http://host:port. It asks once: the caller counts.
func NewControl(base, adminToken string) *Control {
	client, err := penstock.New(penstock.Options{URL: base, AdminToken: adminToken, Timeout: 30 * time.Second, Tries: 1,
		OnlyOptions: true})
	return &Control{client, err}
}

// Close closes idle connections.
func (c *Control) Close() {
	if c.wrong == nil {
		c.client.Close()
	}
}

// do sends a request. Of an answer other than 2xx the body is the detail of the broker.
func (c *Control) do(ctx context.Context, method, path string, form url.Values, fields ...string) (int, []byte, error) {
	if c.wrong != nil {
		return 0, nil, c.wrong
	}
	header := http.Header{}
	if form != nil {
		header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(fields); i += 2 {
		header.Set(fields[i], fields[i+1])
	}
	status, _, body, err := c.client.Manage().Call(ctx, method, path, header, []byte(form.Encode()))
	if refused := (*penstock.Error)(nil); errors.As(err, &refused) && refused.Status != 0 {
		return refused.Status, []byte(refused.Detail), nil
	}
	return status, body, err
}

// Put creates or updates a resource.
func (c *Control) Put(ctx context.Context, path string, form url.Values) error {
	status, body, err := c.do(ctx, http.MethodPut, path, form)
	if err != nil {
		return fmt.Errorf("PUT %s: %w", path, err)
	}
	if status != http.StatusCreated && status != http.StatusOK {
		return fmt.Errorf("PUT %s: %w", path, statusError{status, clip(body, 300)})
	}
	return nil
}

// Delete deletes a resource. One that is not there is deleted.
func (c *Control) Delete(ctx context.Context, path string) error {
	status, body, err := c.do(ctx, http.MethodDelete, path, nil)
	if err != nil {
		return fmt.Errorf("DELETE %s: %w", path, dialError(err))
	}
	if status != http.StatusNoContent && status != http.StatusNotFound {
		return fmt.Errorf("DELETE %s: %w", path, statusError{status, clip(body, 300)})
	}
	return nil
}

// Version returns the broker's own version information, nil if it has none.
func (c *Control) Version(ctx context.Context) map[string]any {
	status, body, err := c.do(ctx, http.MethodGet, "/version", nil)
	var v map[string]any
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &v) != nil {
		return nil
	}
	return v
}

// Ready waits until the broker accepts messages.
func (c *Control) Ready(ctx context.Context, alive func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _, err := c.do(ctx, http.MethodGet, "/readyz", nil)
		if err == nil && status == http.StatusOK {
			return nil
		}
		if err := alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker did not become ready: last answer %d: %w", status, ctx.Err())
		case <-tick.C:
		}
	}
}

// DeadLetters lists the dead letters of a consumer.
type DeadLetters struct {
	ids  map[ident.ID]bool
	keys map[string]bool
}

// Has reports whether a message is among them, by the broker's ID or the producer's key.
func (d *DeadLetters) Has(id ident.ID, key string) bool { return d.ids[id] || key != "" && d.keys[key] }

// maxDead bounds how many dead letters of a consumer are read.
const maxDead = 1_000_000

// DeadLetters reads the dead letters of a consumer, page by page.
func (c *Control) DeadLetters(ctx context.Context, s subscriber) (*DeadLetters, error) {
	d := &DeadLetters{ids: map[ident.ID]bool{}, keys: map[string]bool{}}
	for path := s.path() + "/dlq?size=100"; path != "" && len(d.ids) < maxDead; {
		status, body, err := c.do(ctx, http.MethodGet, path, nil, "X-Broker-Channel-Token", s.channelToken,
			"X-Broker-Consumer-Token", s.token)
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		var page struct {
			DeadJobs []struct{ ID, MessageURL string }
			Pages    map[string]string
		}
		if status != http.StatusOK || json.Unmarshal(body, &page) != nil {
			return nil, fmt.Errorf("read dead letters: %w", statusError{status, clip(body, 300)})
		}
		for _, j := range page.DeadJobs {
			if id, err := ident.Parse(j.ID); err == nil {
				message, _, _ := id.Split()
				d.ids[message] = true
			}
			d.keys[j.MessageURL[strings.LastIndexByte(j.MessageURL, '/')+1:]] = true
		}
		path = page.Pages["next"]
	}
	return d, nil
}

// A statusError is an answer with an unexpected status.
type statusError struct {
	status int
	body   string
}

func (e statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

func clip(b []byte, n int) string {
	return strings.ToValidUTF8(string(b[:min(len(b), n)]), "?")
}
