package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// packageName finds the names of packages that begin errors, of this program and of libraries.
var packageName = regexp.MustCompile(
	`(^|[":;(= ])(durable|redisq|egress|journal|seedfile|reaper|catalogue|jobs|bulk|policy|coding|intake|share|ident|alerts|accept|hotpath|cluster|statusevents|cloudevents|consumerstate|x509|tls|mysql|redis|sql|sqlite): `)

// What is wrong with a setting is told in the words of the page, not in those of the source.
func TestNoMistakeInTheSettingsNamesAPackage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // some of the values are names of files
	seed := filepath.Join(dir, "seed")
	require.NoError(t, os.WriteFile(seed, []byte("[initial-channels]\nx\n"), 0o600))
	wrong := []string{
		"BROKER_MYSQL_DSN=x", "BROKER_MYSQL_DSN=u:p@tcp(h:1)/", "BROKER_MYSQL_DSN=u:p@tcp(h:1)/d?tls=none",
		"BROKER_MYSQL_DSN=u@udp(h)/d?parseTime=x",
		"BROKER_REDIS_URL=http://h", "BROKER_REDIS_URL=redis://", "BROKER_REDIS_URL=redis://h:x",
		"BROKER_REDIS_URL=redis://h/x", "BROKER_REDIS_URL=redis://%zz@h", "BROKER_REDIS_URL=redis://h?a=b",
		"BROKER_REDIS_URL=redis://h,i/1", "BROKER_REDIS_URL=redis://h:70000",
		"BROKER_EGRESS=open", "BROKER_EGRESS_ALLOW=10.0.0.0/99", "BROKER_EGRESS_ALLOW=::ffff:1.2.3.4/8",
		"BROKER_FETCH_EGRESS=x", "BROKER_FETCH_EGRESS_ALLOW=x",
		"BROKER_SEED_FILE=" + seed, "BROKER_SEED_FILE=" + dir, "BROKER_LOG_FILE=" + dir, "BROKER_DATA_DIR=" + seed,
		"BROKER_ALERT_SMTP_URL=x", "BROKER_ALERT_WEBHOOK_URL=x", "BROKER_ALERT_WEBHOOK_SECRET=x", "BROKER_RETRIGGER_URL=x",
		"BROKER_PUBLIC_URL=x", "BROKER_TTL=1ms",
	}
	for _, set := range []string{"x", "-1", "0", "9999999999999999999"} {
		for f := range fields() {
			wrong = append(wrong, f.Tag.Get("env")+"="+set)
		}
	}
	told := 0
	for _, environ := range wrong {
		for _, line := range wrongLines(t, environ) {
			told++
			require.NotRegexp(t, packageName, line, environ)
			require.NotContains(t, line, "%!")
		}
	}
	require.Greater(t, told, len(wrong)/3)
}

// A start that fails says why in its last lines, which name the setting to look at.
func TestAStartThatFailsNamesNoPackage(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := mute.Addr().String()
	require.NoError(t, mute.Close())
	for setting, environ := range map[string][]string{
		"BROKER_MYSQL_DSN": {"BROKER_MYSQL_DSN=u:hunter2@tcp(" + nobody + ")/d"},
		"BROKER_DATA_DIR":  {"BROKER_DATA_DIR=/proc/none"},
		"BROKER_LISTEN":    {"BROKER_LISTEN=" + taken.Addr().String()},
	} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv("BROKER_DATA_DIR", t.TempDir())
			t.Setenv("BROKER_LISTEN", "127.0.0.1:0")
			for _, line := range environ {
				name, value, _ := strings.Cut(line, "=")
				t.Setenv(name, value)
			}
			for _, command := range []string{"serve", "migrate"} {
				if setting == "BROKER_LISTEN" && command == "migrate" {
					continue
				}
				var stdout, stderr bytes.Buffer
				require.NotZero(t, run([]string{command}, &stdout, &stderr))
				require.Contains(t, stderr.String(), setting)
				require.NotRegexp(t, packageName, stderr.String())
				require.NotContains(t, stderr.String(), "hunter2")
			}
		})
	}
}

func TestTheLogShowsErrorsWithoutNamesOfPackages(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log, _, err := newLogger(config{LogLevel: "info", LogFormat: format}, &out)
		require.NoError(t, err)
		inner := fmt.Errorf("redisq: claim: %w", errors.New("egress: timeout"))
		log.Error("it failed", "error", fmt.Errorf("durable: read: %w", inner), slog.Group("more", "cause", inner), "text",
			"redisq: as it is", "n", 1)
		require.Contains(t, out.String(), "read: claim: timeout")
		require.NotContains(t, out.String(), "durable: ")
		require.NotContains(t, out.String(), "egress: ")
		require.Contains(t, out.String(), "redisq: as it is")
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		out.Reset()
		log.Error("which store", "a", ofStore{errors.New("redisq: claim: timeout"), redisq.ErrFailed}, "b",
			ofStore{errors.New("durable: read: timeout"), durable.ErrFailed})
		require.Contains(t, out.String(), "Redis: claim: ")
		require.Contains(t, out.String(), "store: read: ")
	}
}

// An ofStore is an error as the stores return it.
type ofStore struct{ text, is error }

func (e ofStore) Error() string { return e.text.Error() }
func (e ofStore) Unwrap() error { return e.is }

// Each command prints errors as sentences.
func TestEachPrintedErrorIsASentence(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	printed := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || !strings.HasPrefix(f.Sel.Name, "Fprint") {
				return true
			}
			printed++
			for _, arg := range call.Args {
				if id, ok := arg.(*ast.Ident); ok {
					require.NotEqual(t, "err", id.Name, "%s: print sentence.Of(err)", set.Position(call.Pos()))
				}
			}
			return true
		})
	}
	require.Greater(t, printed, 10)
}
