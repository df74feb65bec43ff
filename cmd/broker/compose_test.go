package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
)

// A composition is what the tests read of docker-compose.yml.
type composition struct {
	Services map[string]struct {
		Build       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		Ports       []string
		Healthcheck struct {
			Test    []string
			Disable bool
		}
	}
	Volumes map[string]any
}

func fromRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	require.NoError(t, err)
	return string(text)
}

func readCompose(t *testing.T) composition {
	t.Helper()
	var c composition
	decoder := yaml.NewDecoder(strings.NewReader(fromRoot(t, "docker-compose.yml")))
	require.NoError(t, decoder.Decode(&c))
	return c
}

// substituted is a value as compose makes it without variables.
func substituted(value string) string {
	return regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(value, "$1")
}

func TestTheSettingsOfComposeAreThoseOfTheBroker(t *testing.T) {
	broker := readCompose(t).Services["broker"]
	var environ []string
	for name, value := range broker.Environment {
		environ = append(environ, name+"="+substituted(value))
	}
	c, err := readConfig(environ)
	require.NoError(t, err)
	require.True(t, c.openManagement(), "the quick start lists messages without a token")
	require.NotEmpty(t, c.AdminToken)
	require.NotEmpty(t, c.MySQLDSN)
	require.NotEmpty(t, c.RedisURL)
	for _, port := range broker.Ports {
		require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "management is open: %s", port)
	}
	addr, err := healthAddr(environ)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8080", addr)
}

func TestEachServiceOfComposeTellsItsHealth(t *testing.T) {
	c := readCompose(t)
	require.ElementsMatch(t, []string{"broker", "sample-push", "mysql", "redis"}, slicesOf(c))
	require.Equal(t, []string{"CMD", "/broker", "healthcheck"}, c.Services["broker"].Healthcheck.Test)
	require.Contains(t, fromRoot(t, "Dockerfile"), `CMD ["/broker", "healthcheck"]`)
	require.True(t, c.Services["sample-push"].Healthcheck.Disable, "that of the image asks a broker")
	for name, s := range c.Services {
		require.True(t, s.Healthcheck.Disable || len(s.Healthcheck.Test) > 1, name)
		for _, v := range s.Volumes {
			if source, _, _ := strings.Cut(v, ":"); strings.HasPrefix(source, "./") {
				require.FileExists(t, filepath.Join("..", "..", source))
			} else {
				require.Contains(t, c.Volumes, source)
			}
		}
	}
}

func slicesOf(c composition) (names []string) {
	for name := range maps.Keys(c.Services) {
		names = append(names, name)
	}
	return names
}

// What the README says of the sample is true of `make run` and of `make up`.
func TestTheSampleOfComposeIsThatOfTheDemo(t *testing.T) {
	seed, warnings, err := seedfile.Parse([]byte(fromRoot(t, "deploy/compose/seed.ini")))
	require.NoError(t, err)
	require.Empty(t, warnings)
	store := func(fill func(s *durable.Store) error) map[string]string {
		s, err := durable.OpenSQLite(t.Context(), t.TempDir(), durable.Options{})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, fill(s))
		got, err := s.Changes(t.Context(), 0)
		require.NoError(t, err)
		out := map[string]string{}
		for _, p := range got.Producers {
			out["producer "+p.ID] = p.Token
		}
		for _, c := range got.Channels {
			out["channel "+c.ID] = c.Token
		}
		for _, k := range got.Consumers {
			out[fmt.Sprintf("%s consumer %s", k.Type, k.ID)] = k.Token
		}
		return out
	}
	want := store(func(s *durable.Store) error {
		sink, err := startSink("127.0.0.1:0", &bytes.Buffer{})
		if err != nil {
			return err
		}
		defer sink.Close()
		return sink.create(t.Context(), s)
	})
	require.Equal(t, want, store(func(s *durable.Store) error { return seedfile.Apply(t.Context(), s, seed) }))
	require.Contains(t, fromRoot(t, "deploy/compose/seed.ini"), "http://sample-push:9000/")
	require.Equal(t, []string{"listen", "--on", "0.0.0.0:9000"}, readCompose(t).Services["sample-push"].Command)
}

// The release that go.mod names is the least that builds, and has the repairs of
// the standard library that are known; CI and the image take it from there.
func TestOneReleaseOfGoBuildsEverything(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^go (\d+\.\d+\.\d+)$`)
	m := directive.FindStringSubmatch(fromRoot(t, "go.mod"))
	require.NotNil(t, m)
	require.Equal(t, m, directive.FindStringSubmatch(fromRoot(t, "bench/peers/go.mod")))
	require.Contains(t, fromRoot(t, "Dockerfile"), "golang:"+m[1]+" AS build")
	for _, workflow := range []string{".github/workflows/ci.yml", ".github/workflows/nightly.yml",
		".github/workflows/release.yml"} {
		text := fromRoot(t, workflow)
		require.Equal(t, strings.Count(text, "actions/setup-go@"), strings.Count(text, "go-version-file: go.mod"), workflow)
	}
	require.True(t, strings.HasPrefix(runtime.Version(), "go"+m[1][:strings.LastIndexByte(m[1], '.')]), runtime.Version())
}

func TestAPushConsumerToTryWithPrintsWhatItGets(t *testing.T) {
	w := embeddedWorld(t)
	p := w.start()
	sink, err := startSink("127.0.0.1:0", p.log)
	require.NoError(t, err)
	t.Cleanup(sink.Close)
	p.sample("k=http://" + sink.listener.Addr().String() + "/hook")
	p.publish("hello")
	eventually(t, "it is printed", func() bool {
		return strings.Contains(p.log.String(), "k got POST /hook") && strings.Contains(p.log.String(), "hello")
	})
}
