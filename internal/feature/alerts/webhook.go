package alerts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A Webhook posts alerts, or other notices, to a URL.
type Webhook struct {
	URL    string
	Secret policy.Secret // signs each request as Standard Webhooks; empty: no signature
	Client *http.Client  // egress.Client.Web: it checks addresses and follows no redirect
	Agent  string        // User-Agent
}

// maxAnswer bounds what is read of an answer, so that its connection can be used again.
const maxAnswer = 64 << 10

// Post posts an alert. An answer other than 2xx is an error. The error does not show the URL,
// which may contain a secret.
func (w *Webhook) Post(ctx context.Context, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL of the webhook is not valid")
	}
	req.Header.Set("Content-Type", apitype.MediaJSON)
	req.Header.Set("User-Agent", w.Agent)
	req.Header.Set("webhook-id", id)
	if w.Secret != "" {
		seconds := strconv.FormatInt(time.Now().Unix(), 10)
		req.Header.Set("webhook-timestamp", seconds)
		req.Header.Set("webhook-signature", "v1,"+w.Secret.Sign(id, seconds, body))
	}
	res, err := w.Client.Do(req)
	if err != nil {
		return fmt.Errorf("the webhook did not answer: %w", errors.Unwrap(err)) // without the *url.Error
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // the status decides
	_ = res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %d", res.StatusCode)
	}
	return nil
}
