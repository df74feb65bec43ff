package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

const unitFile = "deploy/systemd/penstock.service"

// unitNames are the names of each section that the unit may have, so that a wrong one is not passed over, as
// systemd does.
var unitNames = map[string][]string{
	"Unit": {"Description", "Documentation", "Wants", "After", "StartLimitIntervalSec"},
	"Service": {"Type", "DynamicUser", "EnvironmentFile", "Environment", "StateDirectory", "StateDirectoryMode",
		"WorkingDirectory", "ExecStartPre", "ExecStart", "Restart", "RestartSec", "TimeoutStopSec", "KillSignal", "KillMode",
		"LimitNOFILE", "OOMPolicy", "CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges", "ProtectSystem",
		"ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectClock", "ProtectControlGroups",
		"ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc",
		"RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality",
		"MemoryDenyWriteExecute", "RemoveIPC", "SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber",
		"UMask"},
	"Install": {"WantedBy"},
}

// readUnit returns the values of the unit by name.
func readUnit(t *testing.T) map[string][]string {
	t.Helper()
	values, section := map[string][]string{}, ""
	for line := range strings.Lines(fromRoot(t, unitFile)) {
		line = strings.TrimRight(line, "\n")
		name, value, assigned := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
			require.Contains(t, unitNames, section)
		default:
			require.True(t, assigned, line)
			require.Contains(t, unitNames[section], name, "in %s", section)
			values[name] = append(values[name], value)
		}
	}
	return values
}

func TestTheUnitOfSystemdFitsTheProgram(t *testing.T) {
	unit := readUnit(t)
	for _, name := range []string{"ExecStartPre", "ExecStart"} {
		require.Len(t, unit[name], 1)
		words := strings.Fields(unit[name][0])
		require.Equal(t, "/usr/bin/broker", words[0])
		at := slices.IndexFunc(allCommands(), func(c subcommand) bool { return c.name == words[1] })
		require.GreaterOrEqual(t, at, 0, words[1])
		flags := flag.NewFlagSet(words[1], flag.ContinueOnError)
		allCommands()[at].prepare(flags)
		require.NoError(t, flags.Parse(words[2:]), words)
		require.Empty(t, flags.Args())
	}
	require.Equal(t, []string{"exec"}, unit["Type"], "the program does not tell systemd that it is ready")
	c, err := readConfig([]string{"BROKER_LISTEN=0.0.0.0:8080", "BROKER_ADMIN_TOKEN=t"})
	require.NoError(t, err)
	stop, err := time.ParseDuration(unit["TimeoutStopSec"][0])
	require.NoError(t, err)
	require.Greater(t, stop, c.drainDelay()+2*c.DrainTimeout+25*time.Second)
	name, folder, _ := strings.Cut(unit["Environment"][0], "=")
	require.Equal(t, "BROKER_DATA_DIR", name)
	require.Equal(t, "/var/lib/"+unit["StateDirectory"][0], folder)
}

// Each line of the file of settings is one that a broker takes, also those that are comments.
func TestTheSettingsOfTheUnitAreThoseOfTheBroker(t *testing.T) {
	var given, all []string
	for line := range strings.Lines(fromRoot(t, "deploy/systemd/penstock.env")) {
		line = strings.TrimSpace(line)
		if setting, ok := strings.CutPrefix(line, "#BROKER_"); ok {
			all = append(all, "BROKER_"+setting)
		} else if line != "" && line[0] != '#' {
			given, all = append(given, line), append(all, line)
		}
	}
	for _, environ := range [][]string{given, all} {
		require.NotEmpty(t, environ)
		_, err := readConfig(environ)
		require.NoError(t, err)
	}
}

// Where systemd is installed, it reads the unit, with a program that is there.
func TestSystemdTakesTheUnit(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the names are checked all the same
	}
	own, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "penstock.service")
	text := strings.ReplaceAll(fromRoot(t, unitFile), "/usr/bin/broker", own)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	said, err := exec.Command(program, "verify", "--man=no", file).CombinedOutput()
	require.NoError(t, err, string(said))
	require.NotContains(t, string(said), "penstock.service:", "nothing is passed over")
}

// asSystemd are the programs of a machine with systemd for a script, with $ROOT in place of /. What systemctl enables
// is linked there, where systemd is installed; systemd-run gives a command the settings that its properties name.
const asSystemd = `
sudo() { "$@"; }
editor() { test -w "$1"; }
journalctl() { test "$1 $2" = "--unit penstock"; }
systemctl() {
	case $1 in
	daemon-reload) ;;
	enable) if type -P systemctl >/dev/null; then command systemctl --root="$ROOT" enable "${@: -1}"; fi ;;
	*) return 1 ;;
	esac
}
systemd-run() {
	local settings=()
	while [ "${1#-}" != "$1" ]; do
		case $1 in
		--pipe | --wait) ;;
		--property=EnvironmentFile=*) settings+=($(grep '^[^#]' "${1#*=*=}")) ;;
		--setenv=*) settings+=("${1#*=}") ;;
		--property=*) echo "property ${1#*=}" ;;
		*) return 1 ;;
		esac
		shift
	done
	env "${settings[@]}" "$@"
}
`

// The commands of the page install what the unit needs, and the last one copies the store of a broker that runs.
func TestTheCommandsOfThePageAboutSystemdWork(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	w.start()
	run, machine, data := w.forPage().script(), t.TempDir(), w.setting("BROKER_DATA_DIR")
	program := filepath.Join(w.folder, "broker")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec '"+os.Args[0]+"' \"$@\"\n"), 0o700))
	for _, folder := range []string{"usr/bin", "etc/systemd/system"} {
		require.NoError(t, os.MkdirAll(filepath.Join(machine, folder), 0o755))
	}
	run.Folder, run.Env = script.Root(t), append(run.Env, "ROOT="+machine)
	run.Begin += asSystemd
	run.Instead = []string{" bin/broker ", " " + program + " ", "/usr/bin/", machine + "/usr/bin/", "/etc/",
		machine + "/etc/", "/var/lib/penstock", data}
	out := run.Page(t, "docs/operate/systemd.md")
	require.FileExists(t, filepath.Join(data, "copy.db"))
	unit := readUnit(t)
	require.Contains(t, out, "property User=penstock\n")
	for _, name := range []string{"DynamicUser", "StateDirectory"} {
		require.Contains(t, out, "property "+name+"="+unit[name][0]+"\n", "the command runs as the unit does")
	}
	require.Equal(t, "/usr/bin/broker", strings.Fields(unit["ExecStart"][0])[0])
	require.FileExists(t, filepath.Join(machine, "usr/bin/broker"))
	info, err := os.Stat(filepath.Join(machine, unit["EnvironmentFile"][0]))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	if _, err := exec.LookPath("systemctl"); err == nil {
		wants := unit["WantedBy"][0] + ".wants"
		require.FileExists(t, filepath.Join(machine, "etc/systemd/system", wants, "penstock.service"))
	}
}
