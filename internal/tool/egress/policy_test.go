package egress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func policy(t testing.TB, mode string, allow ...string) Policy {
	t.Helper()
	p, err := ParsePolicy(mode, allow)
	require.NoError(t, err)
	return p
}

func TestAddressesAreClassified(t *testing.T) {
	private, public := policy(t, "private"), policy(t, "public")
	for _, tc := range []struct {
		addrs           string
		private, public bool
	}{
		{"93.184.216.34 8.8.8.8 1.1.1.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808", true, true},
		{"127.0.0.1 127.9.9.9 ::1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 fc00::1 fd12::1", true, false},
		{"192.0.2.1 198.51.100.7 203.0.113.7 198.18.0.1 2001:db8::1 3fff::1 4000::1 5f00::1", true, false},
		{"::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2002:808:808::", true, false},
		{"169.254.169.254 ::ffff:169.254.169.254 169.254.0.1 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192",
			false, false},
		{"fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%eth0 febf::1 64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe", false, false},
		{"2002:a9fe:a9fe:: 2001:0:0:0:0:0:5601:5601 ::169.254.169.254 fd12::5efe:a9fe:a9fe fd12::200:5efe:a9fe:a9fe",
			false, false},
		{"::ffff:0:808:808 ::ffff:0:7f00:1 100::1 fec0::1 192.88.99.1 2001:20::1 192.0.0.1 198.19.255.255 64:ff9b:1::808:808",
			true, false},
		{"64:ff9b::a00:1 64:ff9b::c0a8:1 64:ff9b::6440:1 2002:c0a8:1::1 2001:0:0:0:0:0:f5ff:fffe", true, false},
		{"::ffff:0:a9fe:a9fe ::ffff:169.254.1.1 fe90::1 ff0e::1 64:ff9b::e000:1 ::0.0.0.5", false, false},
		{"0.0.0.0 0.1.2.3 :: 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 ff02::1 ::ffff:0.0.0.0", false, false},
	} {
		for a := range strings.FieldsSeq(tc.addrs) {
			addr := netip.MustParseAddr(a)
			for p, want := range map[*Policy]bool{&private: tc.private, &public: tc.public} {
				err := p.CheckAddr(addr)
				if want {
					require.NoErrorf(t, err, "%s public=%v", a, p.public)
				} else {
					require.ErrorIsf(t, err, ErrForbidden, "%s public=%v", a, p.public)
				}
			}
		}
	}
	require.ErrorIs(t, private.CheckAddr(netip.Addr{}), ErrForbidden)
}

func TestAnAllowedBlockIsPermittedInEveryMode(t *testing.T) {
	for _, mode := range []string{"private", "public"} {
		p := policy(t, mode, "10.1.0.0/16", " 169.254.169.254 ", "", "::ffff:192.168.0.0/112")
		for _, a := range []string{"10.1.2.3", "169.254.169.254", "192.168.7.7", "::ffff:10.1.2.3"} {
			require.NoError(t, p.CheckAddr(netip.MustParseAddr(a)), a)
		}
	}
	p := policy(t, "public", "10.1.0.0/16")
	require.Error(t, p.CheckAddr(netip.MustParseAddr("10.2.0.1")))
	require.Error(t, p.CheckAddr(netip.MustParseAddr("2002:a01:1::")),
		"an IPv6 spelling of an allowed address is another address")
}

func TestABadPolicyIsRefused(t *testing.T) {
	for _, tc := range [][]string{{"open"}, {"private", "10.0.0.0/33"}, {"private", "example.com"},
		{"public", "fe80::1%eth0"}, {"public", "::ffff:0:0/90"}} {
		_, err := ParsePolicy(tc[0], tc[1:])
		require.Error(t, err, tc)
	}
}

func TestCallbackURLs(t *testing.T) {
	private, public := policy(t, "private"), policy(t, "public")
	for _, u := range []string{
		"http://example.com", "https://example.com:8443/a/b?c=d&e=%20", "http://EXAMPLE.com./x", "http://my_host/cb",
		"http://8.8.8.8/", "https://[2606:4700::1111]:443/", "http://xn--bcher-kva.example/", "http://1password.com",
		"http://a.b1/",
		"http://h/a//b/../c", "http://h?x", "http://h/%2e%2e/%00",
	} {
		require.NoError(t, private.CheckURL(u), u)
		require.NoError(t, public.CheckURL(u), u)
	}
	for _, u := range []string{
		"", "/relative", "example.com/x", "//example.com/x", "ftp://example.com/", "file:///etc/passwd", "gopher://x:70/_",
		"javascript:alert(1)", "http:opaque",
		"http://", "http:///x", "http://:80/", "http://h:/", "http://h:0/", "http://h:65536/", "http://h:http/",
		"http://user@h/", "http://user:pw@h/", "http://:@h/", "http://h/#frag", "http://h/x#",
		"http://good.example\\@evil.example/",
		"http://h/a b", "http://h/\r\nX: y", "http://h/\x00", "http://h/\u00e9", "http://h\u3002com/",
		"http://\uff11\uff12\uff17.0.0.1/", "http://a..b/", "http://.a/",
		"http://%31%32%37.0.0.1/", "http://[::1", "http://[fe80::1%25eth0]/", "http://999.1.1.1/", "http://1.2.3.4.5/",
		"http://0x/0xg/", "http://a.1/", "http://h,i/", "http://h;i/", "http://h i/",
		"http://" + strings.Repeat("a", 64) + "/", "http://" + strings.Repeat("a.", 130) + "a/",
	} {
		if u == "http://0x/0xg/" { // 0x is zero, and zero is unspecified
			require.ErrorIs(t, private.CheckURL(u), ErrForbidden)
			continue
		}
		require.Error(t, private.CheckURL(u), u)
		require.Error(t, public.CheckURL(u), u)
	}
	for _, u := range []string{ // the metadata service in disguise
		"http://169.254.169.254/latest/meta-data", "http://169.254.169.254./", "http://2852039166/", "http://0xa9fea9fe/",
		"http://0xA9.0xFE.0xA9.0xFE/",
		"http://0251.0376.0251.0376/", "http://169.254.43518/", "http://169.16689662/", "http://[::ffff:169.254.169.254]/",
		"http://[::ffff:a9fe:a9fe]/",
		"http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/", "http://[fd00:ec2::254]/",
		"http://metadata.google.internal/", "http://METADATA.google.internal./computeMetadata/",
		"http://metadata/", "http://instance-data/", "http://0/", "http://0.0.0.0:8080/", "http://[::]/",
		"http://100.100.100.200/", "http://224.0.0.1/",
	} {
		require.ErrorIs(t, private.CheckURL(u), ErrForbidden, u)
		require.ErrorIs(t, public.CheckURL(u), ErrForbidden, u)
	}
	for _, u := range []string{ // this machine and its neighbours
		"http://127.0.0.1:8080/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/",
		"http://127.1/", "http://017700000001/",
		"http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:ffff:7f00:1]/", "http://10.0.0.5/",
		"http://192.168.1.1/", "http://[fd12::1]/", "http://100.64.1.1/",
	} {
		require.NoError(t, private.CheckURL(u), u)
		require.ErrorIs(t, public.CheckURL(u), ErrForbidden, u)
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"http://example.com/x", "http://0x7f.1:80/?q#f", "https://[::ffff:1.2.3.4]/",
		"http://a@b/"} {
		f.Add(s)
	}
	p := policy(f, "public")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := p.parse(s)
		if err != nil {
			return
		}
		addr, literal, err := parseHost(d.host)
		require.NoError(t, err)
		if literal {
			require.NoError(t, p.CheckAddr(addr))
		}
		require.NotContains(t, d.uri, "#")
		require.Equal(t, byte('/'), d.uri[0])
		require.NotContains(t, d.authority, "@")
	})
}
