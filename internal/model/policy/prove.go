package policy

import (
	"strconv"
	"time"
)

// Prove sets what the policy of the consumer sets of a request: its own headers, fixed
// credentials, and the signatures of Standard Webhooks over body. id is the same for every
// attempt of a message.
func (p *Policy) Prove(set func(name, value string), id string, body []byte, at time.Time) {
	p.Headers.All(set)
	if value := p.Authorization.Fixed(); value != "" {
		set("Authorization", value)
	}
	if p.SigningSecret == "" {
		return
	}
	seconds := strconv.FormatInt(at.Unix(), 10)
	signatures := "v1," + p.SigningSecret.Sign(id, seconds, body)
	if p.SigningSecretPrevious != "" && at.UnixMilli() < p.SigningPreviousUntil {
		signatures += " v1," + p.SigningSecretPrevious.Sign(id, seconds, body)
	}
	set("webhook-id", id)
	set("webhook-timestamp", seconds)
	set("webhook-signature", signatures)
}
