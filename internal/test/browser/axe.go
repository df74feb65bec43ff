package browser

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// axe-core checks what a page is to people who do not see it, or use no mouse. It is taken from npm when a test
// needs it, because it is larger than all that it checks.
const (
	axePackage = "axe-core@4.14.1"
	axeDigest  = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==" // SHA-512
)

// Axe fetches axe-core and returns its source.
func Axe(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	npm := exec.Command("npm", "pack", "--silent", axePackage)
	npm.Dir = folder
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "%s", out)
	archives, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	text, err := os.ReadFile(archives[0])
	require.NoError(t, err)
	sum := sha512.Sum512(text)
	require.Equal(t, axeDigest, base64.StdEncoding.EncodeToString(sum[:]), axePackage)
	file, err := os.Open(archives[0])
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	require.NoError(t, err)
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		require.NoError(t, err, "the package has no axe.min.js")
		if h.Name == "package/axe.min.js" {
			source, err := io.ReadAll(r)
			require.NoError(t, err)
			return string(source)
		}
	}
}

// Violations runs axe-core, of which source is the source, in the page that is open, and returns what it finds: the
// rule, and the elements that break it. The page must run scripts.
func (b *Browser) Violations(source string) (found []string) {
	b.t.Helper()
	b.Eval(source + "; ''")
	var got struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	b.call(&got, "Runtime.evaluate", map[string]any{"awaitPromise": true, "returnByValue": true,
		"expression": `axe.run().then((r) => JSON.stringify({ passed: r.passes.length, found: r.violations.map((v) =>
			v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary).join('\n')) }))`})
	require.Empty(b.t, string(got.Exception))
	var said struct {
		Passed int      `json:"passed"`
		Found  []string `json:"found"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(got.Result.Value), &said), got.Result.Value)
	require.Greater(b.t, said.Passed, 5, "axe-core has checked the page")
	return said.Found
}
