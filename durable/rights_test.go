package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Grants that are not understood make the finding unclear, and never a right that is there a missing one for sure.
func TestGrantsAreReadOrUnclear(t *testing.T) {
	const usage = "GRANT USAGE ON *.* TO `few`@`%` IDENTIFIED BY PASSWORD '*AB'"
	for name, c := range map[string]struct {
		grants []string
		has    bool // SELECT
		clear  bool
	}{
		"nothing":             {[]string{usage}, false, true},
		"no line":             {nil, false, false},
		"all":                 {[]string{"GRANT ALL PRIVILEGES ON *.* TO `few`@`%` WITH GRANT OPTION"}, true, true},
		"dynamic ones":        {[]string{"GRANT SELECT, BACKUP_ADMIN ON *.* TO `few`@`%`"}, true, true},
		"the database":        {[]string{usage, "GRANT INSERT, SELECT ON `my_db`.* TO `few`@`%`"}, true, true},
		"escaped":             {[]string{usage, "GRANT SELECT ON `my\\_db`.* TO `few`@`%`"}, true, true},
		"ANSI quotes":         {[]string{"GRANT SELECT ON \"my_db\".* TO \"few\"@\"%\""}, true, true},
		"a wildcard":          {[]string{"GRANT SELECT ON `my%`.* TO `few`@`%`"}, true, false},
		"another database":    {[]string{"GRANT SELECT ON `my\\_db2`.* TO `few`@`%`"}, false, true},
		"an escaped wildcard": {[]string{"GRANT SELECT ON `m\\%`.* TO `few`@`%`"}, false, true},
		"a table":             {[]string{"GRANT SELECT ON `my_db`.`messages` TO `few`@`%`"}, false, false},
		"columns":             {[]string{"GRANT SELECT (`a`), INSERT ON `my_db`.`t` TO `few`@`%`"}, false, false},
		"a role":              {[]string{usage, "GRANT `reader`@`%` TO `few`@`%`"}, false, false},
		"a role of MariaDB":   {[]string{"GRANT `reader` TO `few`@`%`", usage}, false, false},
		"a default role":      {[]string{usage, "SET DEFAULT ROLE `reader` FOR `few`@`%`"}, false, false},
		"a partial revoke":    {[]string{"GRANT SELECT ON *.* TO `f`", "REVOKE SELECT ON `my_db`.* FROM `f`"}, true, false},
		"a proxy":             {[]string{usage, "GRANT PROXY ON ''@'' TO 'few'@'%'"}, false, false},
		"a name with quotes":  {[]string{"GRANT SELECT ON `my``db`.* TO `f'e\"w`@`%`"}, false, true},
	} {
		have, clear := rightsOn("my_db", c.grants)
		require.Equal(t, c.clear, clear, name)
		if c.has {
			require.Contains(t, have, "SELECT", name)
		} else {
			require.NotContains(t, have, "SELECT", name)
		}
	}
}

// A look at the store of a killed broker, or of one that runs, makes no file and changes none.
func TestALookAtAStoreLeavesItsFolder(t *testing.T) {
	dir := t.TempDir()
	s := madeStore(t, dir, "c")
	defer s.Close()
	content := func(dir string) map[string]string {
		all := map[string]string{}
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			require.NoError(t, err)
			all[f.Name()] = string(text)
		}
		return all
	}
	running := content(dir)
	require.NotEmpty(t, running[databaseFile+"-wal"])
	found, err := SurveySQLite(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, KnownSchema(), found.Schema, "with what is in the log")
	require.False(t, found.Unread)
	for _, without := range []string{"", databaseFile + "-shm", databaseFile + "-wal"} {
		killed := t.TempDir()
		for _, name := range []string{databaseFile, databaseFile + "-wal", databaseFile + "-shm"} {
			if name != without {
				require.NoError(t, os.WriteFile(filepath.Join(killed, name), []byte(running[name]), 0o600))
			}
		}
		before := content(killed)
		found, err := SurveySQLite(t.Context(), killed)
		if without == "" {
			require.NoError(t, err)
			require.Equal(t, KnownSchema(), found.Schema)
		}
		require.Equal(t, without == databaseFile+"-shm", found.Unread, without)
		require.Equal(t, before, content(killed), "without %s", without)
	}
}
