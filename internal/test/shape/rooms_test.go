package shape

import (
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a producer sends (publish) and the journal (standby) stand above the way into the store
// (accept), which knows neither of them, nor HTTP.
func TestTheWayInIsThreeRoomsWithOneDirection(t *testing.T) {
	for room, never := range map[string][]string{
		"hotpath/accept": {"hotpath/publish", "hotpath/standby", "hotpath/metadata", "internal/feature/journal",
			"github.com/valyala/fasthttp"},
		"hotpath/publish": {"hotpath/standby"},
		"hotpath/standby": {"hotpath/publish", "github.com/valyala/fasthttp"},
	} {
		built, err := build.Default.ImportDir(filepath.Join(root, room), 0)
		require.NoError(t, err)
		for _, path := range built.Imports {
			require.NotContains(t, never, strings.TrimPrefix(path, module), "%s imports it", room)
		}
		if room != "hotpath/accept" {
			require.Contains(t, built.Imports, module+"hotpath/accept", room)
		}
	}
}

func TestTheDocumentationOfTheWayInNamesEveryFile(t *testing.T) {
	for _, room := range []string{"hotpath/accept", "hotpath/publish", "hotpath/standby"} {
		built, err := build.Default.ImportDir(filepath.Join(root, room), 0)
		require.NoError(t, err)
		doc, err := os.ReadFile(filepath.Join(root, room, "doc.go"))
		require.NoError(t, err)
		named := append(regexp.MustCompile(`\w+\.go\b`).FindAllString(string(doc), -1), "doc.go")
		require.ElementsMatch(t, built.GoFiles, named, "%s/doc.go names each file once", room)
	}
}
