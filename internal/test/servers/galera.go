//go:build unix

package servers

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StartGalera starts a Galera cluster of n nodes, empty, which live until the test ends. Each takes writes.
// A node that was killed joins again with Restart, as long as another one is up. It needs MariaDB with
// its package galera-4, and rsync.
func StartGalera(tb TB, n int) []*MySQLServer {
	tb.Helper()
	provider := galeraProvider()
	if provider == "" {
		tb.Fatal("servers: libgalera_smm.so is missing: install the package galera-4")
	}
	ports := make([][3]int, n) // of the group, of incremental and of whole transfers
	addresses := make([]string, n)
	for i := range ports {
		for j := range ports[i] {
			port, err := freePort(0)
			if err != nil {
				tb.Fatal(err)
			}
			ports[i][j] = port
		}
		addresses[i] = "127.0.0.1:" + strconv.Itoa(ports[i][0])
	}
	nodes := make([]*MySQLServer, n)
	for i := range nodes {
		own := addresses[i]
		args := []string{"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
			"--wsrep-provider=" + provider, "--wsrep-cluster-address=gcomm://" + strings.Join(addresses, ","),
			"--wsrep-node-name=" + strconv.Itoa(i), "--wsrep-node-address=" + own, "--wsrep-sst-method=rsync",
			fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", ports[i][2]),
			fmt.Sprintf("--wsrep-provider-options=base_port=%d;gmcast.listen_addr=tcp://%s;ist.recv_addr=127.0.0.1:%d;"+
				"gcache.size=64M;pc.recovery=FALSE", ports[i][0], own, ports[i][1])}
		var prepare func(string) error
		if os.Getuid() == 0 { // rsync of a transfer runs as nobody then
			args, prepare = append(args, "--user=nobody"), giveToNobody
		}
		if i == 0 {
			args = append(args, newCluster)
		}
		nodes[i] = startMySQLServer(tb, args, prepare, nil)
		if i == 0 { // it would begin another cluster when it is restarted
			all := nodes[0].process.args
			nodes[0].process.args = func(port int) []string {
				return slices.DeleteFunc(all(port), func(arg string) bool { return arg == newCluster })
			}
		}
		nodes[i].AwaitSynced(i + 1)
	}
	return nodes
}

const newCluster = "--wsrep-new-cluster"

// AwaitSynced waits until the node of a cluster has all that the others have, in a group of that size.
func (s *MySQLServer) AwaitSynced(size int) {
	s.tb.Helper()
	db, err := sql.Open("mysql", s.RootDSN())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // nothing pending
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var state, members string
		err := db.QueryRow(`SHOW STATUS LIKE 'wsrep_local_state_comment'`).Scan(new(string), &state)
		if err == nil {
			err = db.QueryRow(`SHOW STATUS LIKE 'wsrep_cluster_size'`).Scan(new(string), &members)
		}
		if err == nil && state == "Synced" && members == strconv.Itoa(size) {
			return
		}
		if time.Now().After(deadline) {
			s.tb.Fatal(fmt.Sprintf("servers: the node is %q in a group of %s: %v", state, members, err))
		}
	}
}

// galeraProvider is the library of Galera, "" where it is not installed.
func galeraProvider() string {
	for _, path := range []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so",
		"/usr/lib/libgalera_smm.so"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// giveToNobody lets an unprivileged server have a folder, and enter those above it.
func giveToNobody(dir string) error {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		return err
	}
	for above := filepath.Dir(dir); above != os.TempDir() && len(above) > 1; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err == nil && info.Mode().Perm()&0o011 != 0o011 {
			err = os.Chmod(above, info.Mode().Perm()|0o011)
		}
		if err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, -1)
	})
}
