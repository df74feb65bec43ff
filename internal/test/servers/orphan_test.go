//go:build unix

package servers

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv makes TestMain's process start servers and wait to be killed.
const childEnv = "PENSTOCK_TEST_ORPHANS"

func TestServersAndFoldersVanishWhenTheTestProcessIsKilled(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		mysql, err := startMySQL()
		require.NoError(t, err)
		redis, err := startRedis(nil)
		require.NoError(t, err)
		fmt.Println(mysql.folder.path)
		fmt.Println(redis.folder.path)
		fmt.Println(templateFolder.path)
		time.Sleep(time.Minute) // killed long before
		t.Fatal(mysql.pid, redis.pid)
	}

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	var folders []string
	for len(folders) < 3 && lines.Scan() {
		require.DirExists(t, lines.Text())
		folders = append(folders, lines.Text())
	}
	require.Len(t, folders, 3, "the child could not start its servers")
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	// The janitor removes a folder only after it has killed its server.
	require.Eventually(t, func() bool {
		for _, f := range folders {
			if _, err := os.Stat(f); err == nil {
				return false
			}
		}
		return true
	}, 20*time.Second, 50*time.Millisecond)
}
