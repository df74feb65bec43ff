package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A failure is told in the words of its reader, whatever the library says.
func TestFailuresAreToldWithoutNamesOfPackages(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refuses := closed.Addr().String()
	require.NoError(t, closed.Close())
	_, refused := net.Dial("tcp", refuses)
	_, lookup := (&net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("down")
	}}).LookupHost(context.Background(), "nowhere.invalid")
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	_, stranger := tls.Dial("tcp", secure.Listener.Addr().String(), &tls.Config{ServerName: "example.com"})
	forbidden := fmt.Errorf("%w: %s is %s", ErrForbidden, "169.254.169.254", "a cloud metadata address")
	for _, c := range []struct {
		err  error
		want string
	}{
		{&dialError{refused}, "connection refused by " + refuses},
		{&dialError{lookup}, "the host name nowhere.invalid"},
		{&dialError{fmt.Errorf("TLS handshake: %w", stranger)}, "the certificate of the consumer is signed by an unknown " +
			"authority"},
		{&dialError{forbidden}, "address not allowed: 169.254.169.254 is a cloud metadata address"},
		{forbidden, "address not allowed: 169.254.169.254 is a cloud metadata address"},
		{&dialError{&net.OpError{Op: "dial", Err: forbidden}}, "address not allowed: 169.254.169.254 is a cloud metadata " +
			"address"},
		{&dialError{errStalled}, "timeout in the TLS handshake"},
		{&dialError{fmt.Errorf("%w (%w)", ErrTimeout, &net.OpError{Op: "dial", Net: "tcp",
			Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, Err: context.DeadlineExceeded})},
			"timeout: no connection to 192.0.2.1:80 in time"},
		{&dialError{syscall.EMFILE}, "the broker has no free connection, port or descriptor"},
		{&dialError{ErrClosed}, "client closed"},
		{ErrTimeout, "timeout: no whole answer came in time"},
		{fmt.Errorf("%w (%w)", ErrNoAnswer, io.EOF), "connection closed before an answer"},
		{fmt.Errorf("%w: %w", ErrIncomplete, io.ErrUnexpectedEOF), "answer broke off"},
		{fmt.Errorf("egress: write: %w", &net.OpError{Op: "write", Err: syscall.EPIPE}),
			"the consumer closed the connection before it had the whole request"},
		{ErrRefused, "the consumer refused the request unread"},
		{fmt.Errorf("egress: TLS: %w", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}),
			"the consumer ended the TLS connection: bad certificate"},
		{errors.New("the token endpoint answered 500; nothing was sent to the consumer"),
			"the token endpoint answered 500; nothing was sent to the consumer"},
		{(&handshake{}).explain(errNotHTTP), "the answer is not HTTP/1.1"},
		{&net.OpError{Op: "read", Err: errors.New("poll: weird")}, "the connection failed"},
	} {
		got := Say(c.err)
		require.True(t, strings.HasPrefix(got, c.want), "%v is told as %q", c.err, got)
		require.NotRegexp(t, `egress: |dial tcp|tls: |x509|%!|lookup `, got)
	}
}

func TestTheFailureOfAnExchangeNamesTheAddressThatRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	c := client(t)
	target, err := c.Target(ToConsumers, "http://"+address+"/", "")
	require.NoError(t, err)
	var req fasthttp.Request
	req.Header.SetMethod(fasthttp.MethodPost)
	res := target.Post(&req, time.Minute)
	require.Equal(t, "connection refused by "+address, Say(res.Err))
}

// Owners read whose certificate was shown, in no words of the library.
func TestACertificateOfAnotherHostIsToldByItsNames(t *testing.T) {
	of := func(names []string, ips ...net.IP) error {
		return &dialError{fmt.Errorf("TLS handshake: %w",
			&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{DNSNames: names,
				IPAddresses: ips}, Host: "hooks.example"}})}
	}
	require.Equal(t, "the consumer's certificate is valid for www.example, not hooks.example",
		Say(of([]string{"www.example"})))
	require.Equal(t, "the consumer's certificate is valid for a.example, b.example, c.example and others, not "+
		"hooks.example", Say(of([]string{"a.example", "b.example", "c.example", "d.example"}, net.IPv4(192, 0, 2, 1))))
	require.Equal(t, "the consumer's certificate is valid for 192.0.2.1, not hooks.example",
		Say(of(nil, net.IPv4(192, 0, 2, 1))))
	require.Equal(t, "the certificate of the consumer names no host; it has to name hooks.example", Say(of(nil)))
	require.Less(t, len(Say(of([]string{strings.Repeat("ä", 10_000)}))), 300)
	for reason, want := range map[x509.InvalidReason]string{
		x509.Expired:             "the certificate of the consumer has expired, or is not valid yet",
		x509.IncompatibleUsage:   "the certificate of the consumer is not one of a server",
		x509.NotAuthorizedToSign: "the certificate of the consumer, or one of its chain, does not allow what it is used for",
	} {
		require.Equal(
			t, want, Say(&dialError{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: reason,
				Detail: "x509: detail"}}}))
	}
}
