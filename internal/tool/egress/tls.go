package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// A handshake is what the errors of a TLS connection do not tell of it. One that
// failed in the handshake carried no byte of a request.
type handshake struct {
	under atomic.Bool // begun and not done; only kept for HTTP/2
	asked atomic.Bool // the consumer asked for a client certificate
}

type handshakeKey struct{}

// in returns the context under which the handshake is done.
func (s *handshake) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, handshakeKey{}, s)
}

// noCertificate answers a consumer that asks for a client certificate, and records that.
func noCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if s, ok := info.Context().Value(handshakeKey{}).(*handshake); ok {
		s.asked.Store(true)
	}
	return new(tls.Certificate), nil
}

var errStalled = fmt.Errorf("%w (TLS handshake)", ErrTimeout)

// handshakeFailure returns why a handshake under ctx failed with err, for people.
func (c *Client) handshakeFailure(ctx context.Context, s *handshake, err error) error {
	var record tls.RecordHeaderError
	switch {
	case c.closed():
		return &dialError{ErrClosed}
	case ctx.Err() != nil || isTimeout(err):
		return &dialError{errStalled}
	case errors.As(err, &record) && bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP")):
		err = fmt.Errorf("the consumer speaks HTTP, not TLS (%w)", err)
	}
	return &dialError{s.explain(fmt.Errorf("TLS handshake: %w", err))}
}

// explain adds to the error of an exchange what the consumer wanted and did not
// get. With TLS 1.3 it can say so only when the handshake is over for the client.
func (s *handshake) explain(err error) error {
	if err == nil || s == nil || !s.asked.Load() || errors.Is(err, ErrTimeout) || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, wantsCertificate)
}

// alert reports whether err is that of a TLS connection which one side ended
// with an alert.
func alert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}
