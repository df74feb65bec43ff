package alerts

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-broker/penstock/internal/feature/mail"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Mail sends alerts through a mail server.
type Mail struct {
	Server *mail.Server
	To     []string // at most mail.MostReceivers addresses
}

// Send sends one mail to all recipients.
func (m *Mail) Send(ctx context.Context, id string, alerts []apitype.Alert) error {
	_, err := m.Server.Send(ctx, tryTimeout, &mail.Letter{ID: id, To: m.To, Subject: subject(alerts), Text: text(alerts)})
	return err
}

func subject(alerts []apitype.Alert) string {
	if len(alerts) > 1 {
		return fmt.Sprintf("[Penstock] %d alerts", len(alerts))
	}
	a := alerts[0]
	return fmt.Sprintf("[Penstock] %s: %s", a.Event, strings.TrimSuffix(a.ChannelID+"/"+a.ConsumerID, "/"))
}

func text(alerts []apitype.Alert) string {
	var b strings.Builder
	for i, a := range alerts {
		if i > 0 {
			b.WriteString("\n\n")
		}
		at, _ := a.At.MarshalJSON() // never fails
		fmt.Fprintf(&b, "Event:    %s\nChannel:  %s\nConsumer: %s\nAt:       %s\nReason:   %s\n", a.Event, a.ChannelID,
			a.ConsumerID,
			strings.Trim(string(at), `"`), oneLine(a.Reason))
		if a.ReviveURL != "" {
			fmt.Fprintf(&b, "Revive:   %s\n", a.ReviveURL)
		}
	}
	return b.String()
}

// oneLine keeps a reason, which may quote a consumer, on its line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
