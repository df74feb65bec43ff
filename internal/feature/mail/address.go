package mail

import (
	netmail "net/mail"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// scheme begins the callback URLs of mails.
const scheme = "mailto"

// MostReceivers bounds the addresses of one callback URL.
const MostReceivers = 50

// longestAddress is the bound of RFC 5321, bytes.
const longestAddress = 254

func invalid(detail string) error { return problem.New(400, "invalid_callback", detail) }

// The errors do not quote the URL.
var (
	errQuery = invalid("A mailto: callbackUrl has addresses alone: the fields subject and body say what the mails " +
		"have.")
	errMany = problem.Newf(400, "invalid_callback", "A mailto: callbackUrl has 1 to %d addresses, separated by commas.",
		MostReceivers)
	errAddress = invalid("The addresses of a mailto: callbackUrl must be of the form name@example.com, of ASCII and " +
		"without quotes; letters that a URL cannot have are percent-encoded.")
)

// receivers returns the addresses of a callback URL, after percent-decoding. An address is what headers and
// commands of SMTP take as it is.
func receivers(rawURL string) ([]string, error) {
	given, rest, _ := strings.Cut(rawURL, ":")
	if !strings.EqualFold(given, scheme) || strings.HasPrefix(rest, "//") {
		return nil, errAddress
	}
	if strings.ContainsAny(rest, "?#") {
		return nil, errQuery
	}
	var to []string
	for part := range strings.SplitSeq(rest, ",") {
		address, err := url.PathUnescape(part)
		if err != nil || !plain(address) {
			return nil, errAddress
		}
		if to = append(to, address); len(to) > MostReceivers {
			return nil, errMany
		}
	}
	return to, nil
}

// plain reports whether a text is an address without a name, quotes and an address literal.
func plain(address string) bool {
	for i := range len(address) {
		if c := address[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),:;<>[\]`, c) >= 0 {
			return false
		}
	}
	parsed, err := netmail.ParseAddress(address)
	return err == nil && len(address) <= longestAddress && parsed.Address == address && parsed.Name == ""
}

// Receivers returns the addresses of a setting, which may have names, without blanks around them.
func Receivers(to []string) ([]string, error) {
	out := make([]string, len(to))
	for i, text := range to {
		out[i] = strings.TrimSpace(text)
		if _, err := netmail.ParseAddress(out[i]); err != nil {
			return nil, errAddress
		}
	}
	if len(out) == 0 || len(out) > MostReceivers {
		return nil, errMany
	}
	return out, nil
}

// Domains returns the domains of a setting in small letters.
func Domains(domains []string) ([]string, error) {
	out := make([]string, len(domains))
	for i, text := range domains {
		out[i] = strings.ToLower(strings.TrimSpace(text))
		if !plain("a@" + out[i]) {
			return nil, errAddress
		}
	}
	return out, nil
}

// allowed reports whether all addresses have one of the domains, or one below it. No domains: any.
func allowed(to, domains []string) bool {
	return len(domains) == 0 || !slices.ContainsFunc(to, func(address string) bool {
		_, host, _ := strings.Cut(strings.ToLower(address), "@")
		return !slices.ContainsFunc(domains, func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
	})
}
