package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// named are the failures that this package names, the more telling one first.
var named = []error{ErrClosed, ErrBusy, ErrRefused, errNoH2, errHeadSize, errLengths, errLength, errTransfer, errHeader,
	errInterim, errNotHTTP, errTLS, errChunks, ErrNoAnswer, ErrIncomplete, errH2}

// Say returns what failed in a request of a client of this package as a sentence for the owner of the
// other side, without final dot: it names addresses and hosts, and neither packages nor functions.
func Say(err error) string {
	text := told(err)
	if strings.Contains(err.Error(), wantsCertificate) && !strings.Contains(text, wantsCertificate) {
		text += " (" + wantsCertificate + ")"
	}
	return text
}

// wantsCertificate is what explain adds to an error.
const wantsCertificate = "the consumer asked for a client certificate, and there is none"

func told(err error) string {
	if errors.Is(err, errStalled) {
		return "timeout in the TLS handshake"
	}
	if text := saidOfTLS(err); text != "" {
		return text
	}
	if text := saidOfConnect(err); text != "" {
		return text
	}
	if errors.Is(err, ErrTimeout) {
		return "timeout: no whole answer came in time"
	}
	for _, e := range named {
		if errors.Is(err, e) {
			return bare(e.Error())
		}
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "the consumer closed the connection before it had the whole request"
	case foreign(err):
		return "the connection failed"
	}
	return bare(err.Error())
}

// saidOfConnect says why there is no connection; "": there was one.
func saidOfConnect(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		switch {
		case dns.IsNotFound:
			return "the host name " + dns.Name + " does not exist"
		case dns.IsTimeout:
			return "timeout: the host name " + dns.Name + " was not resolved in time"
		}
		return "the host name " + dns.Name + " could not be resolved"
	}
	var failed *dialError
	if !errors.As(err, &failed) {
		return ""
	}
	where := "the consumer"
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		where = op.Addr.String()
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, ErrForbidden), errors.Is(err, ErrClosed):
		return bare(innermost(err, ErrForbidden, ErrClosed))
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused by " + where
	case errors.Is(err, ErrTimeout):
		return "timeout: no connection to " + where + " in time"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to " + where
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by " + where
	case local(err):
		return "the broker has no free connection, port or descriptor"
	case errors.As(err, &errno):
		return "no connection to " + where + ": " + errno.Error()
	case foreign(err):
		return "no connection to " + where
	}
	return "no connection to " + where + ": " + bare(failed.err.Error())
}

// saidOfTLS says what is wrong with the certificate or the handshake; "": nothing is.
func saidOfTLS(err error) string {
	var stranger x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &stranger):
		return "the certificate of the consumer is signed by an unknown authority"
	case errors.As(err, &host):
		return saidOfHost(host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of the consumer has expired, or is not valid yet"
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "the certificate of the consumer is not one of a server"
	case errors.As(err, &invalid):
		return "the certificate of the consumer, or one of its chain, does not allow what it is used for"
	case errors.As(err, &record) && string(record.RecordHeader[:4]) == "HTTP":
		return "the consumer speaks HTTP, not TLS"
	case errors.As(err, &record):
		return "the consumer does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the consumer ended the TLS connection: " + bare(op.Err.Error())
	case errors.As(err, &op) && op.Op == "local error":
		return "the TLS connection was ended: " + bare(op.Err.Error())
	}
	return ""
}

// mostNames bounds the names of a certificate in a sentence, and longestName each of them.
const mostNames, longestName = 3, 80

// saidOfHost says whose certificate was shown instead.
func saidOfHost(err x509.HostnameError) string {
	var names []string
	if err.Certificate != nil {
		names = append(names, err.Certificate.DNSNames...)
		for _, ip := range err.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
	}
	if len(names) == 0 {
		return "the certificate of the consumer names no host; it has to name " + err.Host
	}
	more := ""
	if len(names) > mostNames {
		names, more = names[:mostNames], " and others"
	}
	for i, name := range names {
		names[i] = strings.ToValidUTF8(name[:min(len(name), longestName)], "?")
	}
	return "the consumer's certificate is valid for " + strings.Join(names, ", ") + more + ", not " + err.Host
}

// innermost returns the text of the first error of the chain that is one of these itself or says why.
func innermost(err error, of ...error) string {
	text := err.Error()
	for _, e := range of {
		if at := strings.LastIndex(text, e.Error()); at >= 0 {
			return text[at:]
		}
	}
	return text
}

// foreign reports whether an error comes from the library of the language, whose text is for programmers.
func foreign(err error) bool {
	var op net.Error
	var errno syscall.Errno
	var cert *tls.CertificateVerificationError
	return errors.As(err, &op) || errors.As(err, &errno) || errors.As(err, &cert)
}

// bare cuts the names of packages off, and of what the library did.
func bare(text string) string {
	text = sentence.Text(text)
	for _, name := range []string{"connect: ", "TLS: ", "tls: ", "x509: "} {
		text = strings.ReplaceAll(text, name, "")
	}
	return text
}
