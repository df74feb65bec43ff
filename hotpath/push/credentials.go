package push

import "strings"

// webhookID is the public ID of the message, or its own where the public ID contains a full stop,
// which separates the parts of what is signed.
func (v *delivery) webhookID() string {
	if id := v.msg.PublicID(); !strings.Contains(id, ".") {
		return id
	}
	return v.msg.ID.String()
}
