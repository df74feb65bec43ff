package reaper

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A Retrigger calls the re-trigger endpoint of a message at a load-balanced URL. Its
// requests carry the admin token, so they go only to the host of that URL: the client
// follows no redirect and ignores the proxy settings of the environment.
type Retrigger struct {
	base   string
	token  string
	prints auditlog.Printer
	client *http.Client
}

// NewRetrigger returns a caller of the endpoints under base with the admin token, and with the passes of
// prints.
func NewRetrigger(base, adminToken string, prints auditlog.Printer) *Retrigger {
	return &Retrigger{base: strings.TrimRight(base, "/"), token: adminToken, prints: prints, client: &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 5 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close drops idle connections.
func (t *Retrigger) Close() { t.client.CloseIdleConnections() }

// Message requests the dispatch of one message.
func (t *Retrigger) Message(ctx context.Context, channelID string, id ident.ID) error {
	url := t.base + "/channel/" + channelID + "/message/" + id.String() + "/re-trigger"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return fmt.Errorf("reaper: re-trigger URL: %w", err)
	}
	req.Header.Set("X-Broker-Admin-Token", t.token)
	req.Header.Set("User-Agent", apitype.FailSafe)
	req.Header.Set(auditlog.FailSafeHeader, t.prints.Pass(channelID, id.String()))
	res, err := t.client.Do(req)
	if err != nil {
		return fmt.Errorf("reaper: re-trigger: %w", err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)); err != nil {
		return fmt.Errorf("reaper: re-trigger: %w", err)
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("reaper: re-trigger of %s: status %d", id, res.StatusCode)
	}
	return nil
}

// retrigger requests the dispatch of the messages in heads whose job is neither over nor
// in Redis.
func (r *Reaper) retrigger(ctx context.Context, ch *catalogue.Channel, s *scan, heads []durable.Head) error {
	ids := make([]ident.ID, len(heads))
	for i, h := range heads {
		ids[i] = h.ID
	}
	states, err := r.Store.JobStates(ctx, s.k.No, ids)
	if err != nil {
		return err
	}
	standings, err := r.Queue.Probe(ctx, s.k.No, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if states[id].Status.Over() || standings[i].State != redisq.Missing {
			continue
		}
		if err := r.Retrigger.Message(ctx, ch.ID, id); err != nil {
			return err
		}
		r.recovered.Inc()
	}
	return nil
}
