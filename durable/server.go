package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Server is what the MySQL server of a store says of itself.
type Server struct {
	Product string     // name and version, such as MariaDB 10.11.6
	Unfit   error      // why it cannot be the store, with what to do; nil: it can
	Weak    []Weakness // settings that weaken the promise of a 201
	Packet  int        // its max_allowed_packet, bytes

	Clustered bool // other servers take writes too: Galera
}

// A Weakness is a setting of a server that weakens the promise of a 201.
type Weakness struct {
	Setting string
	Text    string // what it is, and what follows
	Want    string // the value that it should have; "": that is how such a server works
}

const (
	selectVersion = `
SELECT VERSION()`

	selectVariables = `
SHOW GLOBAL VARIABLES
WHERE Variable_name IN (
    'version_comment',
    'max_allowed_packet',
    'innodb_flush_log_at_trx_commit',
    'innodb_doublewrite',
    'sync_binlog',
    'log_bin',
    'wsrep_on',
    'group_replication_group_name',
    'group_replication_single_primary_mode'
)`
)

// readServer asks a server about itself.
func readServer(ctx context.Context, q querier) (s Server, err error) {
	var version string
	if err := q.QueryRowContext(ctx, selectVersion).Scan(&version); err != nil {
		return Server{}, fmt.Errorf("durable: connect to MySQL: %w", err)
	}
	vars := map[string]string{}
	err = each(ctx, q, selectVariables, nil, func(r *sql.Rows) error {
		var name, value string
		if err := r.Scan(&name, &value); err != nil {
			return err
		}
		vars[strings.ToLower(name)] = strings.ToUpper(value)
		return nil
	})
	if err != nil {
		return Server{}, fmt.Errorf("durable: read the settings of the MySQL server: %w", err)
	}
	s.Product, s.Unfit = product(version, vars["version_comment"])
	s.Packet, err = strconv.Atoi(vars["max_allowed_packet"])
	if err != nil && s.Unfit == nil {
		s.Unfit = errors.New("durable: the MySQL server does not report its max_allowed_packet")
	}
	if s.Unfit == nil && severalPrimaries(vars) {
		s.Unfit = errSeveralPrimaries
	}
	s.Weak, s.Clustered = weaknesses(vars), writesElsewhere(vars)
	return s, nil
}

// errSeveralPrimaries refuses Group Replication with several primaries.
var errSeveralPrimaries = errors.New("durable: the server is one of several primaries of Group Replication, where " +
	"reads may be old: set group_replication_single_primary_mode=ON, or use a Galera cluster")

func severalPrimaries(vars map[string]string) bool {
	return vars["group_replication_group_name"] != "" && vars["group_replication_single_primary_mode"] == "OFF"
}

// needed is what the statements of this package need of a server: FOR UPDATE SKIP LOCKED, and what
// else came with it.
const needed = "use MySQL 8.0.1 or newer, or MariaDB 10.6 or newer"

// product turns the result of VERSION() into a name. The error is of a server that does not do what
// the statements of this package say.
func product(version, comment string) (string, error) {
	lower := strings.ToLower(version)
	number, _, _ := strings.Cut(version, "-")
	name, oldest := "MySQL", [3]int{8, 0, 1}
	switch {
	case strings.Contains(lower, "tidb") || strings.Contains(strings.ToLower(comment), "tidb"):
		_, own, _ := strings.Cut(lower, "-tidb-")
		return strings.TrimSpace("TiDB " + own), fmt.Errorf("durable: the server is TiDB, which takes SKIP LOCKED and locks "+
			"nothing: two brokers would do the same work, without an error; %s", needed)
	case strings.Contains(lower, "mariadb"):
		name, oldest = "MariaDB", [3]int{10, 6, 0}
	}
	var have [3]int
	for i, part := range strings.SplitN(number, ".", 3) {
		have[i], _ = strconv.Atoi(part)
	}
	full := strings.TrimSpace(name + " " + number)
	for i := range have {
		if have[i] > oldest[i] {
			break
		}
		if have[i] < oldest[i] {
			return full, fmt.Errorf("durable: %s is too old, it lacks SKIP LOCKED: %s", full, needed)
		}
	}
	return full, nil
}

func weaknesses(vars map[string]string) (out []Weakness) {
	on := func(name string) bool { return vars[name] == "ON" || vars[name] == "1" }
	weak := func(setting, want, text string) { out = append(out, Weakness{setting, text, want}) }
	if v := vars["innodb_flush_log_at_trx_commit"]; v != "1" {
		weak("innodb_flush_log_at_trx_commit", "1", "innodb_flush_log_at_trx_commit is "+v+", not 1: a power loss of the "+
			"MySQL server loses up to a second of messages that were answered 201")
	}
	if on("log_bin") && vars["sync_binlog"] != "1" {
		weak("sync_binlog", "1", "sync_binlog is "+vars["sync_binlog"]+", not 1: after a power loss of the MySQL server its "+
			"replicas may lack messages that were answered 201")
	}
	if vars["innodb_doublewrite"] == "OFF" {
		weak("innodb_doublewrite", "", "innodb_doublewrite is off: a power loss can tear a page unless the file system "+
			"writes whole pages")
	}
	if writesElsewhere(vars) {
		weak("wsrep_on", "", "the server is part of a Galera cluster: a commit is not flushed on the other nodes when it is "+
			"answered")
	}
	return out
}
