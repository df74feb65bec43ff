package push

import (
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/metadata"
)

// unshared are the headers of a request that belong to its connection or prove the broker to its consumer.
// Readers of a stream are others.
var unshared = []string{"Authorization", "Host", "Content-Length", "User-Agent", "Connection"}

// Headers calls set with each header that an http consumer gets with the attempt, by the same policy, except
// credentials, the token of the consumer, and what is about a connection. Names have the case of the documentation
// and of the producer: it counts in other protocols.
func (a *Attempt) Headers(set func(name, value string)) {
	if a.delivery == nil {
		for name, value := range metadata.Headers(a.Message.Headers) {
			set(name, value)
		}
		set("Content-Type", a.Message.ContentType)
		return
	}
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	a.delivery.fill(req)
	h := &req.Header
	h.Del(a.delivery.d.settings.TokenHeader)
	for _, name := range unshared {
		h.Del(name)
	}
	if a.Test {
		h.Set(TestHeader, "true")
	}
	for name, value := range h.All() {
		set(documented(string(name)), string(value))
	}
}

// documented returns the name of a header that the broker sets as docs/headers.md has it.
func documented(name string) string {
	if begin, ok := strings.CutSuffix(name, "-Id"); ok && (begin == "X-Request" || strings.HasPrefix(name, "X-Broker-")) {
		return begin + "-ID"
	}
	return name
}
