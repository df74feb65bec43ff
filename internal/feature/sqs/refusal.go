package sqs

import (
	"bytes"
	"log/slog"

	"github.com/valyala/fasthttp"
)

// Asks reports whether a request is that of an SQS client by its head, whatever route it is for: it has an action
// of SQS, or a path under which QueueUrls are.
func Asks(rc *fasthttp.RequestCtx) bool {
	if bytes.HasPrefix(rc.Request.Header.Peek(target), []byte(targetPrefix)) {
		return true
	}
	path, _, _ := bytes.Cut(rc.Request.Header.RequestURI(), []byte("?")) // as it was sent: /sqs/../x is no /x
	return bytes.HasPrefix(path, []byte(pathPrefix)) || string(path) == pathPrefix[:len(pathPrefix)-1]
}

// Refuse answers a request of an SQS client that no Door gets, in the form of its protocol: an SDK reads no other
// one.
func Refuse(rc *fasthttp.RequestCtx, err error) {
	f := faultOf(err)
	f.log(slog.Default(), "", requestID(rc))
	protocolOf(rc).fail(rc, "", f)
}
