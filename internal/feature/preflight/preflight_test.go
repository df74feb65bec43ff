package preflight

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/test/fakemysql"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/redisq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patiently gives a part a minute, on machines that are busy.
func patiently(o Options) Options {
	o.Timeout, o.Version, o.MaxBody, o.Journal = time.Minute, "test", 4<<20, 1
	return o
}

// of returns the lines of a check.
func (r Report) of(check string) (lines []Line) {
	for _, l := range r.Lines {
		if l.Check == check {
			lines = append(lines, l)
		}
	}
	return lines
}

// requireLine checks that a check has one line with a state and a text.
func requireLine(t *testing.T, r Report, check string, state State, text string) Line {
	t.Helper()
	lines := r.of(check)
	require.Len(t, lines, 1, "%s: %+v", check, r.Lines)
	require.Equal(t, state, lines[0].State, lines[0].Text)
	require.Contains(t, lines[0].Text, text)
	return lines[0]
}

func TestAnEmptyFolderIsWellAndStaysEmpty(t *testing.T) {
	dir := t.TempDir()
	r := Run(t.Context(), patiently(Options{DataDir: dir}))
	require.True(t, r.OK, r.Lines)
	requireLine(t, r, "store", OK, "none yet")
	requireLine(t, r, "redis", OK, "embedded")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	r = Run(t.Context(), patiently(Options{DataDir: filepath.Join(dir, "a", "b")}))
	requireLine(t, r, "folder", OK, "will be made")
	require.NoDirExists(t, filepath.Join(dir, "a"))
}

func TestWrongSettingsEndTheLook(t *testing.T) {
	faults := []string{"BROKER_A is wrong\nand long", "BROKER_B"}
	r := Run(t.Context(), patiently(Options{DataDir: t.TempDir(), Faults: faults}))
	require.Len(t, r.of("settings"), 2)
	require.Equal(t, "BROKER_A is wrong and long", r.of("settings")[0].Text, "a line is one line")
	require.Empty(t, r.of("store"))
	require.Equal(t, CodeMend, r.Code)
}

func TestAFolderThatIsNoneStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := Run(t.Context(), patiently(Options{DataDir: filepath.Join(file, "data"), Starting: true}))
	require.True(t, requireLine(t, r, "folder", Mend, "is no folder").Stops)
	require.Equal(t, CodeMend, r.Code)
	r = Run(t.Context(), patiently(Options{DataDir: file, MySQLDSN: "u:p@tcp(127.0.0.1:1)/d"}))
	requireLine(t, r, "folder", Note, "ack=journal")
}

func TestTheArchiveIsTried(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	run := func(o Options) Report {
		o.DataDir = t.TempDir()
		return Run(t.Context(), patiently(o))
	}
	r := run(Options{ArchiveDir: filepath.Join(dir, "a", "b")})
	requireLine(t, r, "archive", OK, "may be written")
	require.NoDirExists(t, filepath.Join(dir, "a"))
	if len(r.of("archive.room")) > 0 { // this system knows the room
		requireLine(t, r, "archive.room", OK, "MiB are free")
	}
	r = run(Options{ArchiveDir: filepath.Join(file, "b")})
	require.False(t, requireLine(t, r, "archive", Mend, "is no folder").Stops, "a broker starts without an archive")
	require.Equal(t, CodeMend, r.Code)
	require.Empty(t, run(Options{}).of("archive"))

	for _, c := range []struct {
		err   error
		state State
		text  string
	}{
		{nil, OK, "written to s3://cold"},
		{fmt.Errorf("x: %w: not allowed", archive.ErrNoDelete), Note, "this probe stays"},
		{archive.ErrRefused, Mend, "refuses"},
		{archive.ErrDamaged, Mend, "damaged"},
		{errors.New("no route"), Unreachable, "no route"},
	} {
		r := run(Options{Bucket: "s3://cold", Probe: func(context.Context) error { return c.err }})
		requireLine(t, r, "archive", c.state, c.text)
	}
}

func TestTheRoomOfAFolder(t *testing.T) {
	for _, c := range []struct {
		d     disk
		state State
		text  string
	}{
		{disk{free: 1 << 30, inodes: true}, OK, "1024 MiB are free"},
		{disk{free: 200 << 20, inodes: true}, Note, "BROKER_JOURNAL_MAX_BYTES"},
		{disk{free: 99 << 20, inodes: true}, Mend, "make room"},
		{disk{free: 1 << 40}, Mend, "no inode"},
	} {
		var r Report
		room(&r, "folder.room", c.d, 1<<29)
		requireLine(t, r, "folder.room", c.state, c.text)
	}
	var r Report
	room(&r, "folder.room", disk{free: -1}, 1)
	require.Empty(t, r.Lines)
	room(&r, "folder.room", disk{free: -1, memory: true}, 1)
	requireLine(t, r, "folder.disk", Note, "tmpfs")
}

// The look at a store, with or without a broker on it, leaves its files as they are.
func TestAnEmbeddedStoreIsReadWhileItIsUsedAndWhenItIsNot(t *testing.T) {
	dir := t.TempDir()
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	for _, open := range []bool{true, false} {
		if !open {
			require.NoError(t, s.Close())
		}
		before := contents(t, dir)
		r := Run(t.Context(), patiently(Options{DataDir: dir}))
		require.True(t, r.OK, r.Lines)
		requireLine(t, r, "store.schema", OK, fmt.Sprintf("version %d", durable.KnownSchema()))
		require.Equal(t, before, contents(t, dir))
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "penstock.db"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`UPDATE goose_db_version SET version_id = 48 WHERE version_id > 0`)
	require.NoError(t, err)
	r := Run(t.Context(), patiently(Options{DataDir: dir, Starting: true}))
	require.True(t, requireLine(t, r, "store.schema", Mend, "they have version 48").Stops)
	require.Equal(t, CodeMend, r.Code)
	_, err = db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
	require.NoError(t, err)
	r = Run(t.Context(), patiently(Options{DataDir: dir, Starting: true}))
	require.True(t, requireLine(t, r, "store.schema", Mend, "version 9999").Stops)
	require.Equal(t, CodeMend, r.Code)

	require.NoError(t, db.Close())
	require.NoError(t, os.Truncate(filepath.Join(dir, "penstock.db"), 0))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "penstock.db"), bytes.Repeat([]byte("no database "), 1000), 0o600))
	r = Run(t.Context(), patiently(Options{DataDir: dir}))
	require.True(t, requireLine(t, r, "store", Mend, "broker restore").Stops)
}

// contents are the files of a folder. The index of a log is shared memory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		if strings.HasSuffix(e.Name(), "-shm") {
			text = nil
		}
		all[e.Name()] = string(text)
	}
	return all
}

func TestServersThatCannotBeReachedAreEachTold(t *testing.T) {
	o := patiently(Options{DataDir: t.TempDir(), MySQLDSN: "user:s3cret@tcp(127.0.0.1:1)/d",
		RedisURL: "redis://:s3cret@127.0.0.1:1"})
	r := Run(t.Context(), o)
	require.Equal(t, CodeUnreachable, r.Code)
	require.True(t, requireLine(t, r, "mysql", Unreachable, "BROKER_MYSQL_DSN").Stops)
	require.False(t, requireLine(t, r, "redis", Unreachable, "BROKER_REDIS_URL").Stops, "a broker starts without it")
	require.NotContains(t, fmt.Sprint(r), "s3cret")
}

// A server that says nothing holds nothing up.
func TestAServerThatDoesNotAnswerIsLeft(t *testing.T) {
	mute := muteServer(t)
	o := patiently(Options{DataDir: t.TempDir(), MySQLDSN: "u:p@tcp(" + mute + ")/d", RedisURL: "redis://" + mute})
	o.Timeout = 300 * time.Millisecond
	r := Run(t.Context(), o)
	requireLine(t, r, "mysql", Unreachable, "")
	requireLine(t, r, "redis", Unreachable, "")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, CodeUnreachable, Run(ended, o).Code)
}

func TestProductsThatBreakPromisesSilentlyAreRefused(t *testing.T) {
	for _, c := range []struct{ version, comment, want string }{
		{"8.0.11-TiDB-v7.5.0", "TiDB Server (Apache License 2.0)", "the server is TiDB"},
		{"8.0.36", "TiDB Server (Apache License 2.0)", "the server is TiDB"},
		{"10.5.9-MariaDB", "", "MariaDB 10.5.9 is too old"},
		{"8.0.0-dmr", "", "MySQL 8.0.0 is too old"},
		{"5.7.44-log", "", "MySQL 5.7.44 is too old"},
	} {
		fake, err := fakemysql.Start(c.version, map[string]string{"version_comment": c.comment,
			"max_allowed_packet": "67108864", "innodb_flush_log_at_trx_commit": "1"})
		require.NoError(t, err)
		r := Run(t.Context(), patiently(Options{DataDir: t.TempDir(), MySQLDSN: fake.DSN()}))
		require.True(t, requireLine(t, r, "mysql.version", Mend, c.want).Stops)
		require.Contains(t, r.of("mysql.version")[0].Text, "use MySQL 8.0.1 or newer, or MariaDB 10.6 or newer")
		require.Equal(t, CodeMend, r.Code)
		_, err = durable.OpenMySQL(t.Context(), fake.DSN(), durable.Options{})
		require.ErrorContains(t, err, c.want)
		for _, s := range fake.Statements() {
			require.NotRegexp(t, `^(CREATE|INSERT|UPDATE|DELETE|ALTER)`, s)
		}
		require.NoError(t, fake.Close())
	}
}

func TestARealMySQLIsWellAndWhatIsWrongIsSaid(t *testing.T) {
	dsn := tables.MySQL(t)
	r := Run(t.Context(), patiently(Options{DataDir: t.TempDir(), MySQLDSN: dsn}))
	for _, part := range []string{"", ".version", ".packet", ".clock", ".schema", ".rights"} {
		requireLine(t, r, "mysql"+part, OK, "")
	}
	for _, l := range r.of("mysql.flush") { // the servers of the tests may be quicker than safe
		require.Contains(t, []State{OK, Mend, Note}, l.State)
	}
	o := patiently(Options{DataDir: t.TempDir(), MySQLDSN: dsn, Starting: true})
	o.MaxBody = 1 << 40
	r = Run(t.Context(), o)
	requireLine(t, r, "mysql.packet", Mend, "max_allowed_packet")
	require.Equal(t, CodeMend, r.Code)

	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
	require.NoError(t, err)
	r = Run(t.Context(), patiently(Options{DataDir: t.TempDir(), MySQLDSN: dsn}))
	require.True(t, requireLine(t, r, "mysql.schema", Mend, "version 9999").Stops)
}

// A release that changes the tables says so before it is started.
func TestTablesThatThisProgramWillChangeAreANote(t *testing.T) {
	var r Report
	known := durable.KnownSchema()
	schema(&r, "store.schema", known, known+1)
	requireLine(t, r, "store.schema", Note, "make a backup before")
	require.Contains(t, r.Lines[0].Text, fmt.Sprintf("have version %d: the first broker, or broker migrate, brings "+
		"them to version %d", known, known+1))
}

// A user with the rights that are asked for makes the tables and stores; one without some of them is told.
func TestTheRightsOfAMySQLUserAreLookedAt(t *testing.T) {
	server := servers.StartMySQL(t)
	cfg, err := mysql.ParseDSN(server.DSN())
	require.NoError(t, err)
	root, err := sql.Open("mysql", server.DSN())
	require.NoError(t, err)
	defer root.Close()
	exec := func(text string) {
		_, err := root.Exec(text)
		require.NoError(t, err, text)
	}
	pattern := "`" + strings.ReplaceAll(cfg.DBName, "_", `\_`) + "`.* "
	exec("CREATE USER few IDENTIFIED BY 's3cret'")
	cfg.User, cfg.Passwd = "few", "s3cret"
	look := func() Report {
		return Run(t.Context(), patiently(Options{DataDir: t.TempDir(), MySQLDSN: cfg.FormatDSN()}))
	}
	exec("GRANT SELECT, INSERT, CREATE ON " + cfg.DBName + ".* TO few")
	r := look()
	require.True(t, requireLine(t, r, "mysql.rights", Mend, "lacks UPDATE, DELETE, ALTER, INDEX, DROP").Stops)
	all := slices.Concat(durable.RowRights, durable.TableRights)
	exec("GRANT " + strings.Join(all, ", ") + " ON " + pattern + "TO few")
	requireLine(t, look(), "mysql.rights", OK, "ALTER")
	s, err := durable.OpenMySQL(t.Context(), cfg.FormatDSN(), durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()), "the rights suffice")
	require.NoError(t, s.Close())
	exec("REVOKE ALL PRIVILEGES ON " + cfg.DBName + ".* FROM few")
	exec("REVOKE ALL PRIVILEGES ON " + pattern + "FROM few")
	exec("GRANT SELECT, INSERT, UPDATE, DELETE ON " + cfg.DBName + ".* TO few")
	lacks := requireLine(t, look(), "mysql.rights", Mend, "lacks CREATE, ALTER, INDEX, DROP")
	require.False(t, lacks.Stops, "the tables are there")
	exec("GRANT SELECT ON " + cfg.DBName + ".messages TO few")
	exec("SET GLOBAL sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,NO_BACKSLASH_ESCAPES')")
	exec("REVOKE ALL PRIVILEGES ON " + cfg.DBName + ".* FROM few")
	requireLine(t, look(), "mysql.rights", Note, "not all its grants were understood")
	exec("GRANT SELECT ON " + cfg.DBName + ".* TO few")
	exec("REVOKE SELECT ON " + cfg.DBName + ".messages FROM few")
	require.True(t, requireLine(t, look(), "mysql.rights", Mend, "lacks").Stops)
	exec("GRANT " + strings.Join(all, ", ") + " ON " + pattern + "TO PUBLIC")
	require.False(t, look().of("mysql.rights")[0].Stops, "everybody has them")
	exec("REVOKE " + strings.Join(all, ", ") + " ON " + pattern + "FROM PUBLIC")
	exec("GRANT " + strings.Join(all, ", ") + " ON " + pattern + "TO few")
	requireLine(t, look(), "mysql.rights", OK, "ALTER")
	exec("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	require.Contains(t, fmt.Sprint(look().of("mysql.flush")), "set innodb_flush_log_at_trx_commit=1")
	exec("CREATE ROLE some")
	exec("GRANT some TO few")
	exec("SET DEFAULT ROLE some FOR few")
	requireLine(t, look(), "mysql.rights", Note, "role")
}

func TestARealRedisIsWellAndWhatIsWrongIsSaid(t *testing.T) {
	server := servers.StartRedis(t)
	o, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	admin := redis.NewClient(o)
	defer admin.Close()
	set := func(name, value string) { require.NoError(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	look := func(url string) Report {
		return Run(t.Context(), patiently(Options{DataDir: t.TempDir(), RedisURL: url}))
	}
	r := look(server.URL())
	for _, part := range []string{"", ".version", ".memory", ".persistence", ".clock", ".rights"} {
		requireLine(t, r, "redis"+part, OK, "")
	}
	set("maxmemory-policy", "allkeys-lru")
	require.False(t, requireLine(t, look(server.URL()), "redis.memory", Mend, "once there is a maxmemory").Stops)
	set("maxmemory", "100mb")
	r = look(server.URL())
	require.True(t, requireLine(t, r, "redis.memory", Mend, "set maxmemory-policy noeviction").Stops)
	require.Equal(t, CodeMend, r.Code)
	set("maxmemory-policy", "noeviction")
	requireLine(t, look(server.URL()), "redis.memory", OK, "a full Redis refuses")
	set("appendonly", "yes")
	requireLine(t, look(server.URL()), "redis.persistence", OK, "append-only file")

	rules := []any{"acl", "setuser", "penstock", "on", ">s3cret"}
	for _, rule := range redisq.Rights() {
		rules = append(rules, rule)
	}
	require.NoError(t, admin.Do(t.Context(), rules...).Err())
	few := strings.Replace(server.URL(), "redis://", "redis://penstock:s3cret@", 1)
	requireLine(t, look(few), "redis.rights", OK, "")
	before := admin.DBSize(t.Context()).Val()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "penstock", "-zpopmin", "-subscribe").Err())
	requireLine(t, look(few), "redis.rights", Mend, "subscribe, zpopmin on")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "penstock", "resetkeys", "~other:*").Err())
	requireLine(t, look(few), "redis.rights", Mend, "zscore")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "penstock", "-eval").Err())
	requireLine(t, look(few), "redis.rights", Mend, "may not use eval on")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "penstock", "-info").Err())
	requireLine(t, look(few), "redis.version", Note, "not every server")
	require.Equal(t, before, admin.DBSize(t.Context()).Val(), "the look leaves no key")
	r = look(strings.Replace(few, "s3cret", "wr0ng", 1))
	require.True(t, requireLine(t, r, "redis", Unreachable, "").Stops, "a broker does not start there")
	require.NotContains(t, fmt.Sprint(r), "wr0ng")
}

func TestEachNodeOfARedisClusterIsLookedAt(t *testing.T) {
	cluster := servers.SharedCluster(t)
	r := Run(t.Context(), patiently(Options{DataDir: t.TempDir(), RedisURL: "redis://" + cluster.Addrs()[0]}))
	require.Len(t, r.of("redis.version"), 3)
	require.Len(t, r.of("redis.memory"), 3)
	requireLine(t, r, "redis.rights", OK, "")
}

func TestClocksThatDifferAreToldWithTheirDirection(t *testing.T) {
	for ahead, want := range map[time.Duration]string{time.Second: "ok", 1500 * time.Millisecond: "1.5s ahead of",
		-2 * time.Hour: "2h0m0s behind that"} {
		var r Report
		clock(&r, "c", "MySQL", ahead)
		require.Contains(t, string(r.Lines[0].State)+" "+r.Lines[0].Text, want)
	}
}

func TestTheCodeIsOfTheWorstLineThatCounts(t *testing.T) {
	for _, c := range []struct {
		lines    []Line
		all, few int
	}{
		{[]Line{{State: OK}, {State: Note}}, CodeOK, CodeOK},
		{[]Line{{State: Mend}, {State: OK}}, CodeMend, CodeOK},
		{[]Line{{State: Unreachable}, {State: Mend, Stops: true}}, CodeUnreachable, CodeMend},
		{[]Line{{State: Unreachable, Stops: true}, {State: Mend, Stops: true}}, CodeUnreachable, CodeUnreachable},
	} {
		r := Report{Lines: c.lines}
		r.settle(false)
		require.Equal(t, c.all, r.Code)
		r.settle(true)
		require.Equal(t, c.few, r.Code)
		require.Equal(t, c.few == CodeOK, r.OK)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestAReportIsLinesOrOneObject(t *testing.T) {
	r := Report{OK: true, Lines: []Line{{"mysql", OK, "it <answers>", false}, {"redis", Mend, "mend it", true}}}
	var text, object bytes.Buffer
	require.NoError(t, r.Print(&text))
	require.Equal(t, "ok           mysql               it <answers>\n"+
		"mend         redis               mend it\n", text.String())
	require.NoError(t, r.JSON(&object))
	require.Equal(t, `{"OK":true,"Code":0,"Lines":[{"Check":"mysql","State":"ok","Text":"it <answers>","Stops":false},`+
		`{"Check":"redis","State":"mend","Text":"mend it","Stops":true}]}`+"\n", object.String())
	var back Report
	require.NoError(t, json.Unmarshal(object.Bytes(), &back))
	require.Equal(t, r, back)
	require.Error(t, r.Print(fullDisk{}))
	require.Error(t, r.JSON(fullDisk{}))
}

// muteServer accepts connections and says nothing.
func muteServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return l.Addr().String()
}
