package principal

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/test/certs"
)

// issue returns a certificate with a subject, as a client would show it.
func issue(t *testing.T, subject pkix.Name) *x509.Certificate {
	t.Helper()
	a, err := certs.NewAuthority()
	require.NoError(t, err)
	c, err := a.Issue(func(c *x509.Certificate) { c.Subject = subject })
	require.NoError(t, err)
	return c.Leaf
}

func TestACertificateIsThatOfTheFirstEntryThatItsSubjectMeets(t *testing.T) {
	m, err := Parse(` CN=orders , o=Acme\, Inc. = channel:orders , management:read ;
		CN=orders=dlq;OU=ops+= management:write;`)
	require.ErrorContains(t, err, "entry 3")
	require.Nil(t, m)
	m, err = Parse(" CN=orders , o=Acme\\, Inc. = channel:orders , management:read ;\n\tCN=orders=dlq\n" +
		`CN=a\3Db\=c\5c=group:g;OU=ops=management:write;`)
	require.NoError(t, err)
	for subject, want := range map[*pkix.Name]string{
		{CommonName: "orders", Organization: []string{"Acme, Inc."}}:         "channel:orders management:read",
		{CommonName: "orders", Organization: []string{"Acme, Inc.", "More"}}: "channel:orders management:read",
		{CommonName: "orders", Organization: []string{"Acme"}}:               "dlq",
		{CommonName: "orders"}: "dlq",
		{CommonName: `a=b=c\`}: "group:g",
		{CommonName: "x", OrganizationalUnit: []string{"dev", "ops"}}: "management:write",
		{CommonName: "Orders"}:             "",
		{CommonName: "orders "}:            "",
		{CommonName: "CN=orders"}:          "",
		{Organization: []string{"orders"}}: "",
		{}:                                 "",
		{CommonName: "orders", ExtraNames: []pkix.AttributeTypeAndValue{cn("other")}}: "",
		{CommonName: "other", ExtraNames: []pkix.AttributeTypeAndValue{cn("orders")}}: "dlq", // Go writes ExtraNames instead
		{ExtraNames: []pkix.AttributeTypeAndValue{cn("orders"), cn("other")}}:         "",
	} {
		cert := issue(t, *subject)
		got := ""
		if e := m.of(cert, time.Now()); e != nil {
			got = e.Scopes.String()
		}
		require.Equal(t, want, got, "%s", cert.Subject)
		require.Nil(t, m.of(cert, cert.NotAfter.Add(time.Second)), "it has ended")
	}
}

func cn(value string) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

func TestAWrongEntryIsRefusedWithItsNumber(t *testing.T) {
	for text, says := range map[string]string{
		"orders":                           "entry 1 (orders): it must be SUBJECT=SCOPES",
		"CN=orders":                        "it must be SUBJECT=SCOPES",
		"CN=orders=":                       "is no scope",
		"CN=orders=channel":                "did you mean channel:?",
		"CN=orders=admin":                  "is no scope",
		"CN==dlq":                          "the CN in its subject is empty",
		"=dlq":                             "it must be SUBJECT=SCOPES",
		"orders=x=dlq":                     `"ORDERS" in its subject is no type`,
		"CN=a,b=dlq":                       `"b" in its subject is no TYPE=VALUE`,
		"CN=a,=dlq":                        `is no TYPE=VALUE`,
		"CN=a+OU=b=dlq":                    "a + in its subject",
		"CN=a=dlq;CN=b=dlq;CN=a=channel:c": "entry 3 (CN=a=channel:c): no certificate reaches it, because entry 1",
		"CN=a=dlq;O=b,CN=a=channel:c":      "entry 2",
		strings.Repeat("CN=a", 1<<16):      "entry 1",
		"CN=a=" + strings.Repeat("dlq,", 20) + "dlq": "at most 20 scopes",
	} {
		m, err := Parse(text)
		require.ErrorContains(t, err, says, cut(text))
		require.Less(t, len(err.Error()), 400)
		require.Nil(t, m)
	}
	var many strings.Builder
	for i := range Most + 1 {
		fmt.Fprintf(&many, "CN=x%d=dlq;", i)
	}
	_, err := Parse(many.String())
	require.ErrorContains(t, err, "more than 1000 entries")
	for _, none := range []string{"", " ; \n;"} {
		m, err := Parse(none)
		require.NoError(t, err)
		require.Nil(t, m)
		require.Empty(t, m.Entries())
	}
}

func TestATokenIsOfOneProcessAndItsIDOfTheEntry(t *testing.T) {
	const text = "CN=a=dlq"
	one, err := Parse(text)
	require.NoError(t, err)
	two, err := Parse(text)
	require.NoError(t, err)
	a, b := one.Entries()[0], two.Entries()[0]
	require.Equal(t, a.ID, b.ID)
	require.NotEqual(t, a.Token, b.Token)
	id, ok := apitoken.ID([]byte(a.Token))
	require.True(t, ok)
	require.Equal(t, a.ID, string(id))
	other, err := Parse("CN=a=dlq,channel:c")
	require.NoError(t, err)
	require.NotEqual(t, a.ID, other.Entries()[0].ID)
}

// A request that is not on a connection of TLS is as it was, whatever its headers say.
func TestWithoutTLSNoRequestIsCertified(t *testing.T) {
	m, err := Parse("CN=a=dlq")
	require.NoError(t, err)
	for _, header := range []string{"X-SSL-Client-S-DN", "X-Client-Cert", "X-Forwarded-Client-Cert", "X-Forwarded-Proto"} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.Header.Set(header, "CN=a")
		m.Certify(rc)
		require.Empty(t, rc.Request.Header.Peek("Authorization"), header)
	}
	var none *Map
	rc := &fasthttp.RequestCtx{}
	require.Zero(t, testing.AllocsPerRun(100, func() { none.Certify(rc); m.Certify(rc) }))
}
