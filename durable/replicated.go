package durable

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// A commit with Replicated messages is confirmed when the server says, on the same connection before
// and after it, that a second server has what was committed:
//
//   - semi-synchronous replication: its status is ON with at least one client, and the counter of
//     commits that no replica confirmed has not moved. While the status is ON a commit returns only
//     after a confirmation or a time-out, and the time-out moves the counter and ends the status;
//   - group replication: this server and a majority of at least two members are ONLINE. A commit
//     returns only after a majority has it.
//
// The two reads cost two round trips for each transaction with such messages, which group commit
// shares.

const (
	selectSemiSync = `
SHOW GLOBAL STATUS
WHERE Variable_name IN (
    'Rpl_semi_sync_master_status',
    'Rpl_semi_sync_master_clients',
    'Rpl_semi_sync_master_no_tx',
    'Rpl_semi_sync_source_status',
    'Rpl_semi_sync_source_clients',
    'Rpl_semi_sync_source_no_tx'
)`

	selectGroup = `
SELECT
    COUNT(*),
    COALESCE(SUM(member_state = 'ONLINE'), 0),
    COALESCE(SUM(member_state = 'ONLINE' AND member_id = @@GLOBAL.server_uuid), 0)
FROM performance_schema.replication_group_members`
)

// A replication is what a server says of its replicas. It is comparable: two equal ones that confirm
// show that everything in between was confirmed.
type replication struct {
	on          bool   // a second server has what is committed now
	unconfirmed uint64 // commits without confirmation so far
	group       bool
}

// replication asks the server of a connection.
func (s *Store) replication(ctx context.Context, conn *sql.Conn) (replication, error) {
	vars := map[string]string{}
	err := each(ctx, conn, selectSemiSync, nil, func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		name = strings.Replace(strings.ToLower(name), "_source_", "_master_", 1)
		if vars[name] == "" || value == "ON" { // a server may have both names
			vars[name] = value
		}
		return err
	})
	if err != nil {
		return replication{}, err
	}
	if vars["rpl_semi_sync_master_status"] == "ON" && vars["rpl_semi_sync_master_clients"] != "0" {
		missed, err := strconv.ParseUint(vars["rpl_semi_sync_master_no_tx"], 10, 64)
		return replication{on: err == nil, unconfirmed: missed}, nil
	}
	if !strings.HasPrefix(s.describe, "MySQL") {
		return replication{}, nil
	}
	var members, online, self int
	if err := conn.QueryRowContext(ctx, selectGroup).Scan(&members, &online, &self); err != nil {
		return replication{}, nil // the user may not read it: no proof
	}
	return replication{on: self == 1 && online >= 2 && online > members/2, group: true}, nil
}

// insertReplicated sends a part with the proof around it. A part is not sent where the server has no
// replica before it.
func (s *Store) insertReplicated(ctx context.Context, conn *sql.Conn, insert func() (verdict, error)) (verdict, error) {
	before, err := s.replication(ctx, conn)
	if err != nil {
		v := classify(err)
		if v == unknown { // of the read; nothing was sent
			v = transient
		}
		return v, err
	}
	if !before.on {
		return failed, fmt.Errorf("%w: nothing was stored", ErrNotReplicated)
	}
	if v, err := insert(); err != nil {
		return v, err
	}
	after, err := s.replication(ctx, conn)
	if err != nil {
		return failed, fmt.Errorf("%w: the server does not answer after the commit: %w", ErrNotReplicated, err)
	}
	if after != before {
		return failed, fmt.Errorf("%w: no replica has answered in time", ErrNotReplicated)
	}
	return failed, nil
}
