package clients

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Clients that public generators make of /openapi.json compile, publish and claim.
func TestClientsThatAreMadeOfTheOpenAPIDocumentPublishAndClaim(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][][]string{
		"openapi-typescript": {
			{"npm", "ci"},
			{"node", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts"},
			{"node", "node_modules/typescript/bin/tsc", "--strict", "--noUncheckedIndexedAccess",
				"--exactOptionalPropertyTypes", "--module", "nodenext", "--target", "es2022", "program.ts"},
			{"node", "program.js"},
		},
		"openapi-go": {
			{"go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "made.go", "openapi.json"},
			{"go", "run", "."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, b := t.TempDir(), startBroker(t)
			require.NoError(t, os.CopyFS(folder, os.DirFS("testdata/"+name)))
			res, err := http.Get(b.url + "/openapi.json")
			require.NoError(t, err)
			defer res.Body.Close()
			document, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "openapi.json"), document, 0o644))
			printed := ""
			for i, step := range steps {
				if i == len(steps)-1 {
					step = append(step, b.url)
				}
				printed = command(t, folder, []string{"GOFLAGS=", "GOWORK=off"}, step[0], step[1:]...)
			}
			require.JSONEq(t, `["pull",201,"duplicate_message_id",7,"{\"order\":1}",["DELIVERED"]]`, printed)
		})
	}
}
