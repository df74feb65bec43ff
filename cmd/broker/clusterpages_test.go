package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// Of the commands that need a cluster, the settings are those of the program, the values are those of the chart, and
// nothing is misspelled that bash, kubectl where it is installed, or openssl reads.
func TestTheCommandsOfThePagesAboutClustersFitTheProgram(t *testing.T) {
	parallel(t)
	const redis = "BROKER_REDIS_URL=redis://127.0.0.1:6379/0"
	lines := strings.Split(strings.TrimSpace(script.Commands(t, "docs/operate/galera.md")), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines {
		out := script.Run{Env: scriptEnv(), Within: patience}.Text(t, "env -i "+line+"\n")
		_, err := readConfig([]string{strings.TrimSpace(out), redis})
		require.NoError(t, err)
	}

	several := script.Run{Env: scriptEnv(), Within: patience, Begin: script.Strict + `
broker() { env | grep ^BROKER_; }
curl() { printf '%s\n' "$@"; }
`}.Page(t, "docs/operate/several-stores.md")
	asked := strings.Split(strings.TrimSpace(several), "\n")
	cfg, err := readConfig(asked[:3])
	require.NoError(t, err)
	require.Len(t, cfg.stores, 2)
	require.Equal(t, []string{"-X", "PUT", "http://127.0.0.1:8080/channel/orders", "-d", "store=two"}, asked[3:])

	folder := t.TempDir()
	out := script.Run{Folder: script.Root(t), Env: scriptEnv("NOTED=" + folder), Within: patience, Begin: script.Strict + `
kubectl() {
	printf '%s\n' "$@" >"$NOTED/kubectl"
	if type -P kubectl >/dev/null; then command kubectl "$@" --dry-run=client -o yaml; fi
}
helm() { test "$1 $2" = "install penstock" && test -f "$3/Chart.yaml" && printf '%s\n' "${@:4}"; }
`}.Page(t, "docs/operate/kubernetes.md")
	noted, err := os.ReadFile(filepath.Join(folder, "kubectl"))
	require.NoError(t, err)
	var settings []string
	for line := range strings.Lines(string(noted)) {
		if setting, ok := strings.CutPrefix(strings.TrimSpace(line), "--from-literal="); ok {
			settings = append(settings, setting)
		}
	}
	require.Len(t, settings, 3)
	_, err = readConfig(append(settings, "BROKER_LISTEN=0.0.0.0:8080"))
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "deploy/helm/penstock/values.yaml")), &values))
	set := regexp.MustCompile(`(?m)^--set\n(.*)$`).FindStringSubmatch(out)
	require.NotNil(t, set, out)
	for pair := range strings.SplitSeq(set[1], ",") {
		name, value, _ := strings.Cut(pair, "=")
		require.Contains(t, values, name)
		require.NotEqual(t, value, fmt.Sprint(values[name]), "it is the default")
	}
}

// Each setting that commands of a page set is one of the program.
func TestEachSettingInTheCommandsOfAPageExists(t *testing.T) {
	known := map[string]bool{"BROKER": true} // of the walkthrough
	for f := range fields() {
		known[f.Tag.Get("env")], known[f.Tag.Get("env")+"_FILE"] = true, true
	}
	found := 0
	for _, page := range append(script.Pages(t), script.Glob(t, "examples/*/README.md")...) {
		for _, block := range script.Blocks(script.Page(t, page), "sh") {
			for _, m := range regexp.MustCompile(`\b(BROKER_[A-Z0-9_]+)=`).FindAllStringSubmatch(block, -1) {
				found++
				require.True(t, known[m[1]], "%s: %s", page, m[1])
			}
		}
	}
	require.Greater(t, found, 20)
}
