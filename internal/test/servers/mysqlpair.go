//go:build unix

package servers

import (
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// A MySQLPair is a primary and a replica that has every commit in its own log before
// it is answered (semi-synchronous replication, AFTER_SYNC).
type MySQLPair struct {
	Primary, Replica *MySQLServer

	tb      TB
	dialect replication
}

// A replication is how the one or the other product says it.
type replication struct {
	install, primary, replica []string
	follow, position, await   string
	semiSync                  string // begins the names of the variables of the primary
}

var mariaDBReplication = replication{
	primary: []string{"SET GLOBAL rpl_semi_sync_master_timeout = 3600000",
		"SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
		"SET GLOBAL rpl_semi_sync_master_enabled = ON"},
	replica: []string{"SET GLOBAL rpl_semi_sync_slave_enabled = ON"},
	follow: "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'root', MASTER_USE_GTID = " +
		"slave_pos",
	position: "Gtid_IO_Pos",
	await:    "SELECT MASTER_GTID_WAIT('%s', 60)",
	semiSync: "rpl_semi_sync_master_",
}

// MySQL 8.0.26 and newer.
var mySQLReplication = replication{
	install: []string{"INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
		"INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'"},
	primary: []string{"SET GLOBAL rpl_semi_sync_source_timeout = 3600000",
		"SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_SYNC'",
		"SET GLOBAL rpl_semi_sync_source_enabled = ON"},
	replica: []string{"SET GLOBAL rpl_semi_sync_replica_enabled = ON"},
	follow: "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'root', " +
		"SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
	position: "Retrieved_Gtid_Set",
	await:    "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', 60)",
	semiSync: "rpl_semi_sync_source_",
}

// StartMySQLPair starts both, empty, the replica read-only.
func StartMySQLPair(tb TB) *MySQLPair {
	tb.Helper()
	args := []string{"--log-bin=bin", "--binlog-format=ROW", "--loose-log-slave-updates=ON", "--relay-log=relay",
		"--loose-gtid-strict-mode=ON", "--loose-gtid-mode=ON", "--loose-enforce-gtid-consistency=ON"}
	p := &MySQLPair{tb: tb, dialect: mySQLReplication,
		Primary: StartMySQL(tb, append(args, "--server-id=1")...), Replica: StartMySQL(tb, append(args, "--server-id=2",
			"--read-only=1")...)}
	var version string
	p.ask(p.Replica, func(db *sql.DB) error { return db.QueryRow("SELECT VERSION()").Scan(&version) })
	if strings.Contains(version, "MariaDB") {
		p.dialect = mariaDBReplication
	}
	p.exec(p.Primary, p.dialect.install...)
	p.exec(p.Replica, p.dialect.install...)
	p.exec(p.Replica, append(p.dialect.replica, fmt.Sprintf(p.dialect.follow, p.Primary.Port()), "START REPLICA")...)
	p.exec(p.Primary, p.dialect.primary...)
	p.await("the replica to follow", func() bool { return p.status("Slave_IO_Running", "Replica_IO_Running") == "Yes" })
	return p
}

// WaitAfterCommit makes the primary show a commit to others before the replica has it, as MariaDB
// does by default.
func (p *MySQLPair) WaitAfterCommit() {
	p.tb.Helper()
	p.exec(p.Primary, "SET GLOBAL "+p.dialect.semiSync+"wait_point = 'AFTER_COMMIT'")
}

// GiveUpAfter sets how long a commit waits for the replica. After it the primary goes on alone.
func (p *MySQLPair) GiveUpAfter(d time.Duration) {
	p.tb.Helper()
	p.exec(p.Primary, fmt.Sprintf("SET GLOBAL %stimeout = %d", p.dialect.semiSync, d.Milliseconds()))
}

// Promote makes the replica a primary once it has carried out all that it was sent.
func (p *MySQLPair) Promote() {
	p.tb.Helper()
	p.exec(p.Replica, "STOP REPLICA IO_THREAD")
	var done sql.NullInt64
	position := p.status(p.dialect.position)
	p.ask(p.Replica, func(db *sql.DB) error { return db.QueryRow(fmt.Sprintf(p.dialect.await, position)).Scan(&done) })
	if done.Int64 != 0 {
		p.tb.Fatal("servers: the replica did not carry out what it has")
	}
	p.exec(p.Replica, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = 0")
}

// status is the first of these columns that SHOW REPLICA STATUS has.
func (p *MySQLPair) status(names ...string) (value string) {
	p.tb.Helper()
	p.ask(p.Replica, func(db *sql.DB) error {
		rows, err := db.Query("SHOW REPLICA STATUS")
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil || !rows.Next() {
			return fmt.Errorf("it is no replica: %w", err)
		}
		fields, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, column := range columns {
			for _, name := range names {
				if column == name {
					value = string(fields[i])
				}
			}
		}
		return nil
	})
	return value
}

func (p *MySQLPair) exec(s *MySQLServer, statements ...string) {
	p.tb.Helper()
	p.ask(s, func(db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.Exec(statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

func (p *MySQLPair) ask(s *MySQLServer, f func(db *sql.DB) error) {
	p.tb.Helper()
	db, err := sql.Open("mysql", s.RootDSN())
	if err == nil {
		err = f(db)
		_ = db.Close() // the answer of f counts
	}
	if err != nil {
		p.tb.Fatal(fmt.Sprintf("servers: %v", err))
	}
}

func (p *MySQLPair) await(what string, condition func() bool) {
	p.tb.Helper()
	for end := time.Now().Add(startTimeout); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.tb.Fatal("servers: waited in vain for " + what)
		}
	}
}
