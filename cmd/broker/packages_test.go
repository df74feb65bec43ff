package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The manual in the packages names each command, and no setting that no broker knows.
func TestTheManualNamesEachCommand(t *testing.T) {
	manual := strings.ReplaceAll(fromRoot(t, "deploy/packages/broker.1"), `\-`, "-")
	_, commands, _ := strings.Cut(manual, ".SH COMMANDS")
	commands, _, _ = strings.Cut(commands, ".SH ENVIRONMENT")
	heads := ""
	for _, head := range regexp.MustCompile(`(?m)^\.TP\n(.*)$`).FindAllStringSubmatch(commands, -1) {
		heads += head[1] + "\n"
	}
	for _, c := range allCommands() {
		require.Regexp(t, `[ "]`+regexp.QuoteMeta(c.name)+`\b`, heads)
	}
	known := map[string]bool{}
	for f := range fields() {
		known[f.Tag.Get("env")] = true
	}
	for _, name := range regexp.MustCompile(`BROKER_[A-Z_]+[A-Z]`).FindAllString(manual, -1) {
		require.True(t, known[name], name)
	}
}

// The packages install the unit, its settings and the program where they look for each other.
func TestThePackagesHaveWhatTheUnitNeeds(t *testing.T) {
	unit, packages := readUnit(t), fromRoot(t, "deploy/packages/nfpm.yaml")
	for _, path := range []string{strings.Fields(unit["ExecStart"][0])[0], unit["EnvironmentFile"][0]} {
		require.Contains(t, packages, "dst: "+path+"\n")
	}
	require.Contains(t, packages, "dst: /lib/systemd/system/penstock.service\n")
	require.Contains(t, packages, "dst: /usr/lib/systemd/system/penstock.service\n")
}
