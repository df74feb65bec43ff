package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A profile is a broker by name. It has no token, but where the token is.
type profile struct {
	URL          string `json:"url"`
	TokenCommand string `json:"tokenCommand,omitempty"`
	TokenFile    string `json:"tokenFile,omitempty"`
	Danger       bool   `json:"danger,omitempty"`
}

// profiles are the file of the user.
type profiles struct {
	Current  string             `json:"current,omitempty"`
	Profiles map[string]profile `json:"profiles"`
}

const (
	mostToken     = 4 << 10 // bytes of a token
	tokenPatience = 30 * time.Second
)

// file is where the profiles are.
func (s *session) file() (string, error) {
	if path := s.Getenv("PENSTOCK_PROFILES"); path != "" {
		return path, nil
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", local("there is no folder for profiles: %v; PENSTOCK_PROFILES names a file", err)
	}
	return filepath.Join(folder, "penstock", "profiles.json"), nil
}

func (s *session) readProfiles() (all profiles, err error) {
	path, err := s.file()
	if err != nil {
		return all, err
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return all, local("the profiles cannot be read: %s: %v", path, err)
	}
	if all.Profiles == nil {
		all.Profiles = map[string]profile{}
	}
	return all, nil
}

// writeProfiles replaces the file: a reader sees the old profiles or the new ones.
func (s *session) writeProfiles(all profiles) error {
	path, err := s.file()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(filepath.Dir(path), ".profiles-*") // 0600
	}
	if err != nil {
		return local("the profiles cannot be written: %v", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return local("the profiles cannot be written: %v", err)
	}
	return nil
}

// token gets the token of a profile. No error has a part of it.
func (p *profile) token() (string, error) {
	var text []byte
	var err error
	switch {
	case p.TokenFile != "":
		text, err = os.ReadFile(p.TokenFile)
	case p.TokenCommand != "":
		text, err = output(p.TokenCommand)
	default:
		return "", nil
	}
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", local("the token of the profile cannot be had: %v", err)
	case token == "" || len(token) > mostToken || strings.ContainsAny(token, "\r\n\x00"):
		return "", local("the token of the profile is no single line of up to %d bytes", mostToken)
	}
	return token, nil
}

// output runs a command in a shell and returns the begin of what it prints.
func output(command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenPatience)
	defer cancel()
	shell := []string{"sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	cmd := exec.CommandContext(ctx, shell[0], shell[1], command)
	cmd.Stderr, cmd.Stdin, cmd.WaitDelay = os.Stderr, os.Stdin, time.Second
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(pipe, mostToken+2))
	return text, errors.Join(err, cmd.Wait())
}

func (s *session) profiles() *cobra.Command {
	return group("profile", "keep brokers by name, with where their tokens are",
		s.addProfile(),
		leaf{use: "ls", about: "list the profiles", examples: "broker ctl profile ls", run: s.listProfiles}.command(),
		leaf{use: "use NAME", about: "make a profile the one that is meant without --profile and --url",
			examples: "broker ctl profile use local", least: 1, most: 1, complete: s.profileNames, run: s.useProfile}.command(),
		leaf{use: "check [NAME]", about: "ask the broker of a profile for its version, with its token",
			examples: "broker ctl profile check local", most: 1, complete: s.profileNames, run: s.checkProfile}.command())
}

var profileName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (s *session) addProfile() *cobra.Command {
	var p profile
	c := leaf{use: "add NAME --url URL", about: "add a profile, or replace one",
		long: "The token is not kept: a command prints it, or a file has it. The first profile is the one in use.",
		examples: "broker ctl profile add local --url http://127.0.0.1:8080\n" +
			"broker ctl profile add prod --url http://127.0.0.1:8080 --token-command 'pass show penstock' --danger",
		least: 1, most: 1, run: func(_ *cobra.Command, args []string) error {
			switch p.URL = s.url; {
			case !profileName.MatchString(args[0]):
				return wrong("the name of a profile is 1 to 64 of A-Z a-z 0-9 _ . -")
			case p.URL == "":
				return wrong("--url is missing")
			case s.token != "":
				return wrong("a profile keeps no token: --token-command or --token-file says where it is")
			case p.TokenCommand != "" && p.TokenFile != "":
				return wrong("--token-command and --token-file are two tokens")
			}
			if p.TokenFile != "" {
				path, err := filepath.Abs(p.TokenFile)
				if err != nil {
					return local("--token-file: %v", err)
				}
				p.TokenFile = path
			}
			if _, err := s.dial(target{URL: p.URL}, penstock.Options{ProducerID: "ctl"}); err != nil {
				return err
			}
			all, err := s.readProfiles()
			if err != nil {
				return err
			}
			all.Profiles[args[0]] = p
			if all.Current == "" {
				all.Current = args[0]
			}
			return s.writeProfiles(all)
		}}.command()
	f := c.Flags()
	f.StringVar(&p.TokenCommand, "token-command", "", "`COMMAND` of a shell that prints the admin token")
	f.StringVar(&p.TokenFile, "token-file", "", "`FILE` with the admin token")
	f.BoolVar(&p.Danger, "danger", false, "ask for the name of what a command destroys")
	return c
}

func (s *session) listProfiles(*cobra.Command, []string) error {
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	t := s.table("PROFILE", "URL", "TOKEN", "DANGER", "IN USE")
	for _, name := range slices.Sorted(maps.Keys(all.Profiles)) {
		p := all.Profiles[name]
		token := "none"
		switch {
		case p.TokenCommand != "":
			token = "command"
		case p.TokenFile != "":
			token = "file"
		}
		t.row(map[string]any{"Profile": name, "URL": p.URL, "Token": token, "Danger": p.Danger, "InUse": name == all.Current},
			name, p.URL, token, yes(p.Danger), yes(name == all.Current))
	}
	return t.print()
}

func (s *session) useProfile(_ *cobra.Command, args []string) error {
	all, err := s.readProfiles()
	if err != nil {
		return err
	}
	if _, ok := all.Profiles[args[0]]; !ok {
		return local("there is no profile %q: broker ctl profile ls lists them", args[0])
	}
	all.Current = args[0]
	return s.writeProfiles(all)
}

// checkProfile asks for what needs no token, and then for what needs one.
func (s *session) checkProfile(c *cobra.Command, args []string) error {
	if len(args) == 1 {
		s.profile = args[0]
	}
	m, err := s.manager()
	if err != nil {
		return err
	}
	var about struct{ Version string }
	if err := m.Read(c.Context(), "/version", nil, &about); err != nil {
		return err
	}
	if err := m.Read(c.Context(), "/channels?limit=1", nil, new(json.RawMessage)); err != nil {
		return err
	}
	return s.done(map[string]any{"Profile": s.target.profile, "URL": s.target.URL, "Version": about.Version},
		"%s is a broker %s, and takes the token", s.target.URL, strconv.Quote(about.Version))
}
