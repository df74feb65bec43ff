package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Cluster makes a store work as on a node of a Galera cluster.
func (s *Store) Cluster() { s.clustered = true }

func TestASessionOfAClusterWaitsForTheCommitsOfOthers(t *testing.T) {
	vars := map[string]string{"sql_mode": "STRICT_TRANS_TABLES", "wsrep_on": "OFF", "wsrep_sync_wait": "0"}
	require.NoError(t, checkSession(vars))
	vars["wsrep_on"] = "ON"
	require.ErrorContains(t, checkSession(vars), "wsrep_sync_wait")
	for _, value := range []string{"7", "15"} {
		vars["wsrep_sync_wait"] = value
		require.NoError(t, checkSession(vars))
	}
	vars["wsrep_sync_wait"] = "5" // not of updates
	require.Error(t, checkSession(vars))
}

func TestSeveralPrimariesOfGroupReplicationAreRefused(t *testing.T) {
	require.False(t, severalPrimaries(map[string]string{"group_replication_single_primary_mode": "OFF"}))
	require.False(t, severalPrimaries(map[string]string{"group_replication_group_name": "A",
		"group_replication_single_primary_mode": "ON"}))
	require.True(t, severalPrimaries(map[string]string{"group_replication_group_name": "A",
		"group_replication_single_primary_mode": "OFF"}))
}
