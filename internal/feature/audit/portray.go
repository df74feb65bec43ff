package audit

import (
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// Portray returns what an entry shows of a row of the store, for auditlog.Deed: its settings and its state, with
// fingerprints in the places of secrets, and no payload. nil of a row that is not shown.
func Portray(prints auditlog.Printer) func(row any) any {
	return func(row any) any {
		switch r := row.(type) {
		case durable.Producer:
			return with(r.Former, map[string]any{"ID": r.ID, "Name": r.Name, "Token": prints.Token(r.Token),
				"PublishSecret": prints.Print(r.PublishSecret), "Settings": policy.Printed(r.Settings, prints.Print)})
		case durable.Channel:
			return with(r.Former, map[string]any{"ID": r.ID, "Name": r.Name, "Token": prints.Token(r.Token),
				"Paused": r.Paused, "Group": r.Group, "Settings": policy.Printed(r.Intake, prints.Print)})
		case durable.Group:
			return map[string]any{"ID": r.ID, "Name": r.Name, "Paused": r.Paused, "MaxChannels": r.MaxChannels,
				"Settings": r.Settings}
		case durable.Consumer:
			return with(r.Former, map[string]any{"ID": r.ID, "Name": r.Name, "Token": prints.Token(r.Token),
				"Type": r.Type.String(), "CallbackURL": policy.PrintedURL(r.CallbackURL, prints.Print),
				"Protocol": r.Protocol, "State": r.State.String(), "StateReason": r.StateReason,
				"Policy": policy.Printed(r.Policy, prints.Print)})
		case durable.APIToken:
			shown := map[string]any{"ID": r.ID, "Name": r.Name, "Scopes": strings.Fields(r.Scopes)}
			if r.ExpiresMs > 0 {
				shown["ExpiresAt"] = at(r.ExpiresMs)
			}
			return shown
		case durable.SQSKey:
			return map[string]any{"AccessKeyID": r.ID, "SecretAccessKey": prints.Print(r.Secret)}
		}
		return progress(row)
	}
}

// with adds until when the token before the present one is valid, where there is one. A later change does not
// remove what has passed.
func with(f durable.Former, shown map[string]any) map[string]any {
	if f.FormerUntilMs > 0 {
		shown["FormerEndsAt"] = at(f.FormerUntilMs)
	}
	return shown
}

// progress shows a row of work that has no secret.
func progress(row any) any {
	switch r := row.(type) {
	case durable.Redriving:
		shown := map[string]any{"ID": r.ID(), "State": r.State.String(), "Canary": r.Canary, "Rate": r.Rate,
			"Matched": r.Matched, "Redriven": r.Redriven, "Reason": r.Reasons.String(), "To": at(r.ToMs), "Limit": r.Most}
		if r.HasFingerprint {
			shown["Fingerprint"] = r.Fingerprint.String()
		}
		if r.FromMs > 0 {
			shown["From"] = at(r.FromMs)
		}
		return shown
	case durable.Replay:
		return map[string]any{"ID": r.ID(), "State": r.State.String(), "From": at(r.After.Millis() + 1),
			"To": at(r.Through.Millis()), "Only": r.Of.String(), "Filter": r.Filter, "Rate": r.Rate}
	case durable.Bulk:
		return map[string]any{"State": bulk.StateOf(&r), "Published": r.Published, "Total": r.Total}
	case durable.Scheduled:
		return map[string]any{"MessageID": strings.ToValidUTF8(r.Key, ""), "DispatchAt": at(r.DueMs),
			"Recurrence": r.Recurrence}
	}
	return nil
}

func at(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
