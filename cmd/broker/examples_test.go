package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The worker of curl does each job once, and gives back the one whose command fails.
func TestTheExampleWorkerOfCurlDoesItsJobs(t *testing.T) {
	parallel(t)
	world := emptyWorld(t)
	p, _ := startDemoBroker(t, world)
	w := newTerminal(t, nil)
	w.env = append(w.env, "BROKER_DATA_DIR="+world.setting("BROKER_DATA_DIR"), "CHANNEL_TOKEN=sample-channel-token",
		"CONSUMER_TOKEN=sample-pull-token")
	script, err := filepath.Abs("../../examples/curl/worker.sh")
	require.NoError(t, err)
	worker := func(jobs, command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{script, sampleChannel, samplePull},
			strings.Fields(command)...)...)
		cmd.Env = append(append(clearedEnv(), w.env...), "BROKER="+p.base, "JOBS="+jobs)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	p.put("/channel/sample-channel/consumer/sample-pull", "backoff", "1s")
	w.ok(`broker publish sample-channel 'say "hello" \ twice'`)
	require.Contains(t, worker("1", "false"), ": 1\n")
	require.Contains(t, worker("1", "tr a-z A-Z"), `: 0: SAY "HELLO" \ TWICE`)
	w.ok("broker publish sample-channel -f - --type application/octet-stream < <(printf '\\377\\001')")
	require.Contains(t, worker("1", "od -An -tx1"), ": 0:  ff 01")
	pull := p.do("GET", "/channel/sample-channel/consumer/sample-pull", "").json(t)
	require.EqualValues(t, 0, pull["Queued"].(float64)+pull["InFlight"].(float64)+pull["DeadLetters"].(float64))
}

// A broker with the settings and the seed of the example of compose takes the request of its page, and its receiver,
// the same program, would get it.
func TestTheExampleOfComposeSetsUpABroker(t *testing.T) {
	parallel(t)
	var c composition
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "examples/compose/docker-compose.yml")), &c))
	broker, receiver := c.Services["broker"], c.Services["receiver"]
	require.Equal(t, []string{"sink", "--on", "0.0.0.0:9000"}, receiver.Command)
	require.Contains(t, broker.Volumes, "./seed.ini:"+broker.Environment["BROKER_SEED_FILE"]+":ro")
	require.Contains(t, c.Volumes, "broker-data")
	for _, port := range broker.Ports {
		require.True(t, strings.HasPrefix(port, "127.0.0.1:"), port)
	}
	target := newSink(t, nil)
	seed := filepath.Join(t.TempDir(), "seed.ini")
	text := strings.ReplaceAll(fromRoot(t, "examples/compose/seed.ini"), "http://receiver:9000", target.URL)
	require.NoError(t, os.WriteFile(seed, []byte(text), 0o600))
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false", "BROKER_SEED_FILE="+seed)
	runPage(t, p, "examples/compose/README.md", "cd examples/compose\n", "", "docker compose logs receiver\n", "",
		"BROKER_ADMIN_TOKEN=choose-one docker compose up -d --build\n", "")
	eventually(t, "the delivery", func() bool { return target.count() == 1 })
	require.Equal(t, "hello", target.all()[0].body)
}

// The container for development builds with the Go that the image has.
func TestTheDevelopmentContainerHasTheGoOfTheImage(t *testing.T) {
	var container struct{ Build struct{ Dockerfile string } }
	require.NoError(t, json.Unmarshal([]byte(fromRoot(t, ".devcontainer/devcontainer.json")), &container))
	image := fromRoot(t, ".devcontainer/"+container.Build.Dockerfile)
	_, rest, _ := strings.Cut(image, "FROM ")
	from, _, _ := strings.Cut(rest, "\n")
	require.Contains(t, fromRoot(t, "Dockerfile"), " "+from+" AS build")
}
