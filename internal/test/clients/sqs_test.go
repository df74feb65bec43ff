package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sqsInstalled is the once in which sqsFolder installs.
var sqsInstalled sync.Mutex

// sqsFolder returns a copy of testdata/sqs with its packages of npm installed, which all tests share.
func sqsFolder(t *testing.T) string {
	t.Helper()
	sqsInstalled.Lock()
	defer sqsInstalled.Unlock()
	to := filepath.Join(filepath.Dir(brokerProgram), "sqs")
	if _, err := os.Stat(filepath.Join(to, "installed")); err == nil {
		return to
	}
	require.NoError(t, os.CopyFS(to, os.DirFS(filepath.Join("testdata", "sqs"))))
	require.NoError(t, os.RemoveAll(filepath.Join(to, "node_modules")))
	command(t, to, nil, "npm", "ci", "--no-audit", "--no-fund")
	require.NoError(t, os.WriteFile(filepath.Join(to, "installed"), nil, 0o600))
	return to
}

// The SDK of AWS, unchanged, does with a broker what it does with SQS.
func TestTheSDKOfAWSTakesTheBrokerForSQS(t *testing.T) {
	t.Parallel()
	folder := sqsFolder(t)
	b := startBroker(t, "BROKER_ALLOW_DELETE=true")
	command(t, folder, []string{"SQS_ENDPOINT=" + b.url}, "node", "--test", "sdk.test.mjs")
}

// An access key is all that a client of SQS needs where management is closed, and it does no more than it may.
func TestTheSDKOfAWSSignsWithAccessKeys(t *testing.T) {
	t.Parallel()
	folder := sqsFolder(t)
	b := startBroker(t, "BROKER_OPEN_MANAGEMENT=false", "BROKER_ADMIN_TOKEN=admin")
	command(t, folder, []string{"SQS_ENDPOINT=" + b.url, "SQS_ADMIN=admin"}, "node", "--test", "keys.test.mjs")
}

// sqs-consumer, unchanged, handles each message of a queue.
func TestSQSConsumerTakesTheBrokerForSQS(t *testing.T) {
	t.Parallel()
	folder := sqsFolder(t)
	b := startBroker(t)
	command(t, folder, []string{"SQS_ENDPOINT=" + b.url}, "node", "--test", "consumer.test.mjs")
}

// debianPython is the Python that has the packages of Debian.
const debianPython = "/usr/bin/python3"

// boto3 of Debian, which speaks the older query protocol, does with a broker what it does with SQS.
func TestBoto3OfDebianTakesTheBrokerForSQS(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	command(t, filepath.Join("testdata", "sqs"), []string{"SQS_ENDPOINT=" + b.url, "PYTHONDONTWRITEBYTECODE=1"},
		debianPython, "-m", "unittest", "boto_test")
}

// A celeryApp is the example of Celery over the door, in a folder of its own.
type celeryApp struct {
	t      *testing.T
	folder string
	env    []string
}

func newCeleryApp(t *testing.T, b *broker) *celeryApp {
	t.Helper()
	a := &celeryApp{t: t, folder: t.TempDir()}
	require.NoError(t, os.CopyFS(a.folder, os.DirFS(filepath.Join(root, "examples", "celery-over-sqs"))))
	a.use(b)
	return a
}

// use sets the broker of what is started from now on.
func (a *celeryApp) use(b *broker) {
	a.env = []string{"CELERY_BROKER_URL=sqs://any:any@" + strings.TrimPrefix(b.url, "http://"), "VISIBILITY_TIMEOUT=3",
		"PYTHONDONTWRITEBYTECODE=1"}
}

// worker starts a worker. end kills it and its children, as a machine that goes away does.
func (a *celeryApp) worker() (end func()) {
	a.t.Helper()
	cmd := exec.Command(debianPython, "-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "info")
	said := &text{}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = a.folder, append(cleanEnv(), a.env...), said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(a.t, cmd.Start())
	end = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if a.t.Failed() {
			a.t.Logf("log of a worker:\n%s", said)
		}
	})
	a.t.Cleanup(end)
	return end
}

func (a *celeryApp) send(code string) {
	a.t.Helper()
	command(a.t, a.folder, a.env, debianPython, "-c", "import tasks; "+code)
}

// noted returns how often the tasks have noted each line.
func (a *celeryApp) noted() map[string]int {
	written, _ := os.ReadFile(filepath.Join(a.folder, "out.txt"))
	lines := map[string]int{}
	for _, line := range strings.Fields(strings.ReplaceAll(string(written), " ", "-")) {
		lines[line]++
	}
	return lines
}

// await waits until the tasks have noted what is wanted.
func (a *celeryApp) await(wanted func(map[string]int) bool) map[string]int {
	a.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		lines := a.noted()
		if wanted(lines) {
			return lines
		}
		require.True(a.t, time.Now().Before(deadline), "the tasks noted %v", lines)
	}
}

// Celery of Debian runs its tasks over the door, unchanged, and loses none when its worker and the broker are
// killed.
func TestCeleryOfDebianRunsOverTheDoor(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	a := newCeleryApp(t, b)
	end := a.worker()
	a.send("[tasks.add.delay(i, i) for i in range(3)]; tasks.flaky.delay('f')")
	require.Equal(t, map[string]int{"add-0": 1, "add-2": 1, "add-4": 1, "flaky-f": 1},
		a.await(func(lines map[string]int) bool { return len(lines) == 4 }))
	ended := 0
	for { // until a worker is killed in the middle of a task
		a.send("tasks.slow.delay(2)")
		a.await(func(lines map[string]int) bool { return lines["slow-begins"] > ended })
		end()
		lines := a.noted()
		if ended = lines["slow-ends"]; lines["slow-begins"] > ended {
			break
		}
		end = a.worker()
	}
	a.send("tasks.add.delay(20, 22)")
	b.kill()
	a.use(startBrokerOn(t, b.data))
	a.worker()
	a.await(func(lines map[string]int) bool { // the task of the killed worker comes again
		return lines["add-42"] > 0 && lines["slow-ends"] > ended
	})
}
