package push

import (
	"strings"

	"github.com/valyala/fasthttp"
)

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

// setOwn returns the function that sets a header of the consumer's policy, whose name keeps its case.
// The header replaces metadata of that name in any case.
func setOwn(h *fasthttp.RequestHeader) func(name, value string) {
	return func(name, value string) {
		for have := range h.All() {
			if len(have) == len(name) && strings.EqualFold(string(have), name) {
				name = string(have)
				break
			}
		}
		h.SetCanonical([]byte(name), []byte(value))
	}
}
