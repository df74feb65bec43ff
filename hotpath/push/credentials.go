package push

import "strings"

// webhookID is the ID of the message that the consumer knows, or the internal one where that contains
// a full stop, which separates the parts of what is signed.
func (v *delivery) webhookID() string {
	if id := v.msg.PathID(); !strings.Contains(id, ".") {
		return id
	}
	return v.msg.ID.String()
}

// provable returns the function that sets the headers of the consumer's policy. Its own headers do
// not replace the one that carries its token; its credentials may, where that is Authorization.
func (v *delivery) provable(set func(name, value string)) func(name, value string) {
	token := v.d.settings.TokenHeader
	return func(name, value string) {
		if !strings.EqualFold(name, token) || strings.EqualFold(name, "Authorization") {
			set(name, value)
		}
	}
}
