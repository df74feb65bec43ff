package clients

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// An example is a folder of examples beside the clients that it uses.
type example struct {
	t      *testing.T
	folder string
	env    []string
}

func newExample(t *testing.T, name string, b *broker) *example {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, "examples", name))
	require.NoError(t, err)
	python, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	return &example{t, folder, []string{"PENSTOCK_URL=" + b.url, "PYTHONPATH=" + python, "PYTHONDONTWRITEBYTECODE=1"}}
}

// start runs a program of the example until the test ends. SIGTERM must end it.
func (e *example) start(program string, args ...string) *text {
	e.t.Helper()
	cmd := exec.Command(program, args...)
	said := &text{}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = e.folder, append(cleanEnv(), e.env...), said, said
	require.NoError(e.t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	e.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			e.t.Errorf("%s does not end", program)
		}
		if e.t.Failed() {
			e.t.Logf("%s %v: %s", program, args, said)
		}
	})
	return said
}

func TestTheExampleOfResizingMakesSmallPictures(t *testing.T) {
	t.Parallel()
	e := newExample(t, "resize", startBroker(t))
	photos, small := t.TempDir(), filepath.Join(t.TempDir(), "small")
	command(t, photos, nil, "/usr/bin/python3", "-c", "from PIL import Image\n"+
		"Image.new('RGB', (400, 200), 'red').save('a.png'); Image.new('RGB', (100, 300), 'blue').save('b.jpg')")
	require.NoError(t, os.WriteFile(filepath.Join(photos, "c.png"), []byte("no picture"), 0o600))
	e.start("/usr/bin/python3", "-m", "penstock", "worker", "-A", "tasks", "-Q", "resize", "-c", "2")
	out := command(t, e.folder, e.env, "/usr/bin/python3", "resize.py", photos, small, "40", "20")
	require.Contains(t, out, "a.png 40x20\na.png 20x10\nb.jpg 40x120\nb.jpg 20x60\nc.png failed: ")
	require.Contains(t, out, "is no picture")
	size := command(t, small, nil, "/usr/bin/python3", "-c", "from PIL import Image; print(Image.open('a-20.png').size)")
	require.Equal(t, "(20, 10)\n", size)
}

func TestTheExampleOfARequestGetsItsResponse(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	e := newExample(t, "request-response", b)
	e.start("/usr/bin/python3", "prices.py")
	require.Eventually(t, func() bool {
		res, err := http.Get(b.url + "/channel/prices/consumer/prices")
		require.NoError(t, err)
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
	out := command(t, e.folder, e.env, "/usr/bin/python3", "ask.py", "lamp", "moon")
	require.Equal(t, `lamp {"item":"lamp","price":20}`+"\n"+`moon {"item":"moon","unknown":true}`+"\n", out)
}

// A webhook of the provider comes to the service once, also while the service was down and the provider repeats it.
func TestTheExampleOfTheWebhookRelayDeliversSignedWebhooks(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	e := newExample(t, "webhook-relay", b)
	program := filepath.Join(t.TempDir(), "relay")
	command(t, root, nil, "go", "build", "-o", program, "./examples/webhook-relay")
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	on, service := freeAddr(t), freeAddr(t)
	relay := e.start(program, "-secret", secret, "-on", on, "-to", "billing=http://"+service+"/hook")
	var own string
	require.Eventually(t, func() bool {
		found := regexp.MustCompile(`signed with (whsec_\S+)`).FindStringSubmatch(relay.String())
		if found != nil {
			own = found[1]
		}
		return found != nil
	}, patience, 20*time.Millisecond)
	send := func(id, body, with string) int {
		provider, err := standardwebhooks.NewWebhook(with)
		require.NoError(t, err)
		at := time.Now()
		signature, err := provider.Sign(id, at, []byte(body))
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+on+"/", bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		for name, value := range map[string]string{"webhook-id": id, "webhook-signature": signature,
			"webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "Content-Type": "application/json"} {
			req.Header.Set(name, value)
		}
		var res *http.Response
		require.Eventually(t, func() bool {
			res, err = http.DefaultClient.Do(req.Clone(t.Context()))
			return err == nil
		}, patience, 20*time.Millisecond)
		_ = res.Body.Close()
		return res.StatusCode
	}
	require.Equal(t, 400, send("msg_0", "{}", "whsec_AAAAr8GKYqrTwjUPD8ILPZIo2LaLaSw="))
	require.Equal(t, 204, send("msg_1", `{"paid":1}`, secret))
	require.Equal(t, 204, send("msg_1", `{"paid":1}`, secret), "a repeat is stored once")
	require.Equal(t, 204, send("msg_2", `{"paid":2}`, secret))
	got := e.start(program, "-receive", service, "-secret", own)
	require.Eventually(t, func() bool {
		return strings.Contains(got.String(), `msg_1 {"paid":1}`) && strings.Contains(got.String(), `msg_2 {"paid":2}`)
	}, patience, 50*time.Millisecond)
	require.Equal(t, 1, strings.Count(got.String(), "msg_1"))
	require.Equal(t, 2, b.messages("webhooks"))
}
