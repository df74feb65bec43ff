package coding

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// streamed reads coded bytes a byte at a time.
func streamed(value string, body []byte, most int64) ([]byte, error) {
	r, err := NewReader(value, iotest.OneByteReader(bytes.NewReader(body)), most)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(iotest.OneByteReader(r))
}

func TestAStreamIsDecodedAsAWhole(t *testing.T) {
	body := []byte(strings.Repeat("some text ", 1000))
	for value, packed := range map[string][]byte{
		"gzip": coded(t, "gzip", body), "deflate": coded(t, "deflate", body), "br": coded(t, "br", body),
		"zstd":          coded(t, "zstd", body),
		"deflate, gzip": coded(t, "gzip", coded(t, "deflate", body)),
	} {
		got, err := streamed(value, packed, int64(len(body)))
		require.NoError(t, err, value)
		require.Equal(t, body, got, value)
		_, err = streamed(value, packed, int64(len(body))-1)
		require.ErrorIs(t, err, ErrTooLarge, value)
	}
	members := append(coded(t, "gzip", []byte("first, ")), coded(t, "gzip", []byte("second"))...)
	got, err := streamed("gzip", members, 100)
	require.NoError(t, err)
	require.Equal(t, "first, second", string(got))
}

// io.EOF comes only where the coded bytes end.
func TestWhatIsCutOrFollowedBySomethingIsBroken(t *testing.T) {
	for _, name := range []string{"gzip", "deflate", "raw"} {
		value := strings.Replace(name, "raw", "deflate", 1)
		packed := coded(t, name, []byte(strings.Repeat("text", 20)))
		for n := range packed {
			_, err := streamed(value, packed[:n], 1000)
			require.ErrorIs(t, err, ErrBroken, "%s, %d of %d bytes", name, n, len(packed))
		}
		for _, more := range []string{"\x00", "x", "\x1f\x8b", "{}"} {
			_, err := streamed(value, append(bytes.Clone(packed), more...), 1000)
			require.ErrorIs(t, err, ErrBroken, "%s and %q", name, more)
			_, err = Decode(value, append(bytes.Clone(packed), more...), 1000)
			require.ErrorIs(t, err, ErrBroken, "%s and %q", name, more)
		}
		broken := io.MultiReader(bytes.NewReader(packed), iotest.ErrReader(errors.New("the connection ended")))
		r, err := NewReader(value, broken, 1000)
		require.NoError(t, err)
		_, err = io.ReadAll(r)
		require.ErrorIs(t, err, ErrBroken, "the end of what is read is not known")
	}
}

func TestGzipAndDeflateAreSmall(t *testing.T) {
	for value, small := range map[string]bool{
		"": true, "gzip": true, "X-GZip": true, "deflate": true,
		"gzip, gzip": false, "deflate, gzip": false, "br": false, "zstd": false, "gzip, zstd": false, "compress": false,
	} {
		require.Equal(t, small, Small(value), value)
	}
	body := make([]byte, 4<<20) // that does not get small
	chance := rand.NewChaCha8([32]byte{1})
	_, _ = chance.Read(body)
	body = append(body, bytes.Repeat([]byte("text that gets small "), 100_000)...)
	buf := make([]byte, 4<<10)
	for _, name := range []string{"gzip", "deflate"} {
		packed := coded(t, name, body)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, err := NewReader(name, bytes.NewReader(packed), 1<<30)
		require.NoError(t, err)
		for err == nil {
			_, err = r.Read(buf)
		}
		require.ErrorIs(t, err, io.EOF)
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(Window), name)
		runtime.KeepAlive(r)
	}
}

// A stream is decoded as a whole is, however it comes.
func FuzzReader(f *testing.F) {
	f.Add("gzip", []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add("deflate", []byte{0x78, 0x9c, 0x03, 0, 0, 0, 0, 1})
	f.Add("deflate, gzip", []byte{0x03, 0})
	f.Fuzz(func(t *testing.T, value string, body []byte) {
		clean, err := Clean(value)
		if err != nil || clean == "" || strings.Contains(clean, "br") || strings.Contains(clean, "zstd") {
			return
		}
		whole, err := Decode(clean, body, 1000)
		piece, pieceErr := streamed(clean, body, 1000)
		require.Equal(t, err == nil, pieceErr == nil, "%v, %v", err, pieceErr)
		if err != nil {
			require.True(t, errors.Is(err, ErrBroken) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnknown), err)
			return
		}
		require.Equal(t, string(whole), string(piece))
	})
}
