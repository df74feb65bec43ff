package durable

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// madeStore makes a store in a folder with a channel of a name.
func madeStore(t *testing.T, dir, channel string) *Store {
	t.Helper()
	s, err := OpenSQLite(t.Context(), dir, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.PutChannel(t.Context(), Put{ID: channel, NewToken: "t"})
	require.NoError(t, err)
	return s
}

// copyOf is a backup of a store with one channel.
func copyOf(t *testing.T, channel string) (file string) {
	t.Helper()
	dir := t.TempDir()
	s := madeStore(t, dir, channel)
	file = filepath.Join(dir, "copy")
	require.NoError(t, BackupSQLite(t.Context(), dir, file))
	require.NoError(t, s.Close())
	return file
}

// channelsOf are the channels of the store in a folder.
func channelsOf(t *testing.T, dir string) (ids []string) {
	t.Helper()
	s, err := OpenSQLite(t.Context(), dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	got, err := s.Changes(t.Context(), 0)
	require.NoError(t, err)
	for _, c := range got.Channels {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestACopyBecomesTheStoreOfAFolder(t *testing.T) {
	file, dir := copyOf(t, "new"), filepath.Join(t.TempDir(), "data")
	kept, err := RestoreSQLite(t.Context(), dir, file, false)
	require.NoError(t, err)
	require.Empty(t, kept)
	info, err := os.Stat(filepath.Join(dir, databaseFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, []string{"new"}, channelsOf(t, dir))
	require.FileExists(t, file, "the copy stays")
}

// A store that was left by a killed broker has what it committed last in its log.
func TestAStoreThatIsReplacedIsKeptWithItsLog(t *testing.T) {
	file, dir, killed := copyOf(t, "new"), t.TempDir(), t.TempDir()
	s := madeStore(t, dir, "old")
	for _, name := range []string{databaseFile, databaseFile + "-wal"} { // as the kill leaves them
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotEmpty(t, text)
		require.NoError(t, os.WriteFile(filepath.Join(killed, name), text, 0o600))
	}
	_, err := RestoreSQLite(t.Context(), dir, file, true)
	require.ErrorContains(t, err, "stop it first", "it is in use")
	require.NoError(t, s.Close())
	_, err = RestoreSQLite(t.Context(), dir, file, false)
	require.ErrorIs(t, err, ErrOccupied)
	require.Equal(t, []string{"old"}, channelsOf(t, dir))

	kept, err := RestoreSQLite(t.Context(), killed, file, true)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(killed, databaseFile+"-wal"), "it would count for the new file")
	require.Equal(t, []string{"new"}, channelsOf(t, killed))
	again := t.TempDir()
	_, err = RestoreSQLite(t.Context(), again, kept, false)
	require.NoError(t, err, "what was kept is a store")
	require.Equal(t, []string{"old"}, channelsOf(t, again))
}

func TestAStoreThatCannotBeReadIsReplacedAndKept(t *testing.T) {
	file, dir := copyOf(t, "new"), t.TempDir()
	broken := bytes.Repeat([]byte("no database "), 1000)
	for _, name := range []string{databaseFile, databaseFile + "-wal"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), broken, 0o600))
	}
	kept, err := RestoreSQLite(t.Context(), dir, file, true)
	require.NoError(t, err)
	for _, name := range []string{kept, kept + "-wal"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, broken, text)
	}
	require.Equal(t, []string{"new"}, channelsOf(t, dir))
}

// The part that a cut restore has left may be the last copy there is: a restore of it does not remove it.
func TestAFileThatWouldBeReplacedIsNotRestored(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, madeStore(t, dir, "old").Close())
	text, err := os.ReadFile(copyOf(t, "new"))
	require.NoError(t, err)
	part := filepath.Join(dir, databaseFile+".restoring")
	require.NoError(t, os.WriteFile(part, text, 0o600))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(part, link))
	store := filepath.Join(dir, databaseFile)
	for _, file := range []string{part, link, store, filepath.Join(dir, ".", "..", filepath.Base(dir), databaseFile)} {
		_, err = RestoreSQLite(t.Context(), dir, file, true)
		require.ErrorIs(t, err, ErrOwnFile, file)
	}
	now, err := os.ReadFile(part)
	require.NoError(t, err)
	require.Equal(t, text, now)
	require.Equal(t, []string{"old"}, channelsOf(t, dir))
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(part, moved))
	_, err = RestoreSQLite(t.Context(), dir, moved, true)
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, channelsOf(t, dir))
}

// Whatever is wrong with a file, the store that is there stays, byte by byte.
func TestAFileThatIsNoWholeCopyChangesNothing(t *testing.T) {
	whole, err := os.ReadFile(copyOf(t, "new"))
	require.NoError(t, err)
	dir, place := t.TempDir(), t.TempDir()
	require.NoError(t, madeStore(t, dir, "old").Close())
	before, err := os.ReadFile(filepath.Join(dir, databaseFile))
	require.NoError(t, err)
	file := filepath.Join(place, "file")
	altered := func(change func(b []byte)) []byte {
		b := bytes.Clone(whole)
		change(b)
		return b
	}
	for what, text := range map[string][]byte{
		"empty": {}, "text": []byte(strings.Repeat("no database ", 1000)), "half": whole[:len(whole)/2],
		"without its last page": whole[:len(whole)-4096], "a byte short": whole[:len(whole)-1],
		"another header": altered(func(b []byte) { b[0] = 's' }),
		"a torn page":    altered(func(b []byte) { clear(b[4096:8192]) }),
		"zeros behind":   altered(func(b []byte) { clear(b[len(b)/2:]) }),
	} {
		require.NoError(t, os.WriteFile(file, text, 0o600))
		_, err := RestoreSQLite(t.Context(), dir, file, true)
		require.ErrorIs(t, err, ErrDamaged, what)
	}
	_, err = RestoreSQLite(t.Context(), dir, filepath.Join(place, "missing"), true)
	require.ErrorIs(t, err, ErrDamaged)
	_, err = RestoreSQLite(t.Context(), dir, place, true)
	require.ErrorIs(t, err, ErrDamaged, "a folder")
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	require.NoError(t, os.WriteFile(file+"-wal", []byte("log"), 0o600))
	_, err = RestoreSQLite(t.Context(), dir, file, true)
	require.ErrorContains(t, err, "make the copy with broker backup")
	require.NoError(t, os.Remove(file+"-wal"))
	for statement, want := range map[string]error{
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`: ErrNewerSchema,
		`UPDATE goose_db_version SET version_id = 49 WHERE version_id > 0`:       ErrOlderSchema,
		`DROP TABLE goose_db_version`:                                            ErrDamaged,
	} {
		require.NoError(t, os.WriteFile(file, whole, 0o600))
		db, err := sql.Open("sqlite", file)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		_, err = RestoreSQLite(t.Context(), dir, file, true)
		require.ErrorIs(t, err, want)
	}
	after, err := os.ReadFile(filepath.Join(dir, databaseFile))
	require.NoError(t, err)
	require.Equal(t, before, after)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 2, "the store and its lock")
}

// A crash in the middle leaves a part, which the next restore replaces.
func TestAPartOfARestoreThatWasCutIsReplaced(t *testing.T) {
	file, dir := copyOf(t, "new"), t.TempDir()
	part := filepath.Join(dir, databaseFile+".restoring")
	require.NoError(t, os.WriteFile(part, []byte("half"), 0o600))
	_, err := RestoreSQLite(t.Context(), dir, file, false)
	require.NoError(t, err)
	require.NoFileExists(t, part)
	require.Equal(t, []string{"new"}, channelsOf(t, dir))
}
