package durable_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDocumentationOfThePackageNamesEveryFile(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var named []string
	for _, name := range regexp.MustCompile(`\w+\.go\b`).FindAllString(string(doc), -1) {
		if !strings.HasSuffix(name, "_test.go") {
			named = append(named, name)
		}
	}
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") && path != "doc.go" {
			require.Contains(t, named, path)
		}
	}
	for _, name := range named {
		require.FileExists(t, name)
	}
}
