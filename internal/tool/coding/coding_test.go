package coding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/molecule-man/go-brrr"
	"github.com/stretchr/testify/require"
)

// coders apply one coding.
var coders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"raw": func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, 6)
		return f
	},
	"br": func(w io.Writer) io.WriteCloser {
		b, _ := brrr.NewWriter(w, 5)
		return b
	},
	"zstd": func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w)
		return z
	},
}

func coded(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := coders[coding](&out)
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestEachCodingIsUndone(t *testing.T) {
	for _, text := range []string{"", `{"a":1}`, strings.Repeat("text ", 10_000)} {
		body := []byte(text)
		for value, packed := range map[string][]byte{
			"gzip": coded(t, "gzip", body), "X-GZip": coded(t, "gzip", body), "deflate": coded(t, "deflate", body),
			"Deflate": coded(t, "raw", body), "br": coded(t, "br", body), "zstd": coded(t, "zstd", body), "": body,
			"deflate, gzip": coded(t, "gzip", coded(t, "deflate", body)),
			"br,zstd,gzip":  coded(t, "gzip", coded(t, "zstd", coded(t, "br", body))),
		} {
			got, err := Decode(value, packed, 1<<20)
			require.NoError(t, err, value)
			require.Equal(t, text, string(got), value)
		}
	}
}

func TestMoreThanTheBoundIsNotDecoded(t *testing.T) {
	for name := range coders {
		value := strings.Replace(name, "raw", "deflate", 1)
		got, err := Decode(value, coded(t, name, make([]byte, 1000)), 1000)
		require.NoError(t, err, name)
		require.Len(t, got, 1000)
		_, err = Decode(value, coded(t, name, make([]byte, 1001)), 1000)
		require.ErrorIs(t, err, ErrTooLarge, name)
	}
	// Much between two codings, though little comes out of it.
	many := bytes.Repeat(coded(t, "gzip", nil), 1000)
	got, err := Decode("gzip", many, 10)
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = Decode("gzip, br", coded(t, "br", many), 10_000)
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestWhatIsNotCodedAsItSaysIsBroken(t *testing.T) {
	for _, value := range []string{"gzip", "deflate", "zstd", "br"} {
		for _, body := range []string{"{}", "plain text, which is not coded", "\x1f\x8b\x08"} {
			_, err := Decode(value, []byte(body), 1000)
			require.ErrorIs(t, err, ErrBroken, "%s %q", value, body)
		}
		name := value
		packed := coded(t, name, []byte(strings.Repeat("text", 100)))
		_, err := Decode(value, packed[:len(packed)-1], 1000)
		require.ErrorIs(t, err, ErrBroken, value)
	}
	for _, value := range []string{"compress", "aws-chunked", "gzip,gzip,gzip,gzip", "gzip, foo"} {
		_, err := Decode(value, nil, 1000)
		require.ErrorIs(t, err, ErrUnknown, value)
	}
	_, err := Decode("zstd", []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"), 1000) // a window of 2 GiB
	require.ErrorIs(t, err, ErrBroken)
}

func TestAValueIsAListOfTokens(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "identity": "", " gzip ": "gzip", "Identity, gzip": "gzip", "gzip,,br": "gzip, br",
		"aws-chunked,gzip": "aws-chunked, gzip", "\tGZip": "GZip",
	} {
		got, err := Clean(value)
		require.NoError(t, err, value)
		require.Equal(t, want, got)
	}
	for _, value := range []string{"a b", "gzip;q=1", "gz\r\nip", "\u00e4", strings.Repeat("g", 256), "a\x00"} {
		_, err := Clean(value)
		require.ErrorIs(t, err, ErrSyntax, "%q", value)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("gzip", []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"))
	f.Add("deflate, br", []byte{0x78, 0x9c})
	f.Add("zstd", []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, value string, body []byte) {
		clean, err := Clean(value)
		if err != nil {
			return
		}
		again, err := Clean(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
		if out, err := Decode(clean, body, 1000); err == nil && clean != "" {
			require.LessOrEqual(t, len(out), 1000)
		}
	})
}
