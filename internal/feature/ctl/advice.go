package ctl

import (
	"encoding/json"
	"net"
	"net/netip"
	"path"
	"strings"
	"time"
)

// What the settings of a broker say that somebody should know. Each advice is about settings that are allowed and
// may be meant.

// A settings is those of a broker by name, as GET /settings has them.
type settings map[string]struct {
	Name, Value string
	Set         bool
}

// An advice is a finding, and when it holds.
type advice struct {
	level, page string
	holds       func(s settings) bool
	text        string
}

// advices are all of them, the worst first.
var advices = []advice{
	{"CRITICAL", "docs/settings-together.md", func(s settings) bool { return s.remote() && s.open() },
		"BROKER_OPEN_MANAGEMENT is on and the broker listens beyond loopback: every machine that reaches it reads all " +
			"tokens and changes everything"},
	{"CRITICAL", "docs/resources.md",
		func(s settings) bool { return s.remote() && s.open() && s.is("BROKER_ALLOW_DELETE", "true") },
		"BROKER_ALLOW_DELETE is on where management needs no token beyond loopback: every machine that reaches the " +
			"broker deletes channels and dead letters"},
	{"WARNING", "docs/settings/listening.md", func(s settings) bool { return temporary(s["BROKER_DATA_DIR"].Value) },
		"BROKER_DATA_DIR is a folder that a restart of the machine may empty, and the journal and an embedded store are " +
			"in it"},
	{"WARNING", "docs/operate/backup.md", func(s settings) bool { return s.remote() && !s["BROKER_MYSQL_DSN"].Set },
		"the store is the embedded one and the broker listens beyond loopback: there is one broker, and its disk has the " +
			"only copy of all messages"},
	{"WARNING", "docs/reliability.md", func(s settings) bool { return s.is("BROKER_REAPER", "false") },
		"BROKER_REAPER is off: at least one other broker must have it on, or jobs that Redis lost stay lost"},
	{"WARNING", "docs/bulk.md", func(s settings) bool { return s.remote() && s.is("BROKER_FETCH_EGRESS", "private") },
		"BROKER_FETCH_EGRESS is private: a producer can make the broker fetch from addresses of its own network"},
	{"WARNING", "docs/settings-together.md", func(s settings) bool { return s.is("BROKER_RETENTION", "0s") },
		"BROKER_RETENTION is 0: no message is ever removed, so the store grows without end"},
	{"WARNING", "docs/deadletters.md",
		func(s settings) bool { return strings.HasPrefix(s["BROKER_DLQ"].Value, "expire:") },
		"BROKER_DLQ is expire: dead letters of consumers without a dlq of their own are removed, whether anybody looked " +
			"at them or not"},
	{"WARNING", "docs/dashboard.md",
		func(s settings) bool {
			return s.remote() && !s.is("BROKER_UI", "off") && s.is("BROKER_UI_PAYLOADS", "show")
		},
		"BROKER_UI_PAYLOADS is show and the broker listens beyond loopback: whoever logs in to the dashboard reads all " +
			"payloads"},
	{"WARNING", "docs/notices.md",
		func(s settings) bool {
			return s.remote() && !s["BROKER_ALERT_TO"].Set && !s["BROKER_ALERT_WEBHOOK_URL"].Set
		},
		"neither BROKER_ALERT_TO nor BROKER_ALERT_WEBHOOK_URL is set: of consumers in trouble only those hear who " +
			"read the channel ~alerts"},
	{"WARNING", "docs/settings-together.md",
		func(s settings) bool {
			drain, delivery := s.duration("BROKER_DRAIN_TIMEOUT"), s.duration("BROKER_DELIVERY_TIMEOUT")
			return drain > 0 && drain < delivery
		},
		"BROKER_DRAIN_TIMEOUT is shorter than BROKER_DELIVERY_TIMEOUT: a broker that stops cuts slow deliveries, which " +
			"are sent again"},
	{"WARNING", "docs/settings/watching.md", func(s settings) bool { return s.is("BROKER_LOG_LEVEL", "debug") },
		"BROKER_LOG_LEVEL is debug: the log grows with the traffic"},
}

// advise returns what holds of the answer to GET /settings.
func advise(answer []byte) (found []finding) {
	var list struct {
		Result []struct {
			Name, Value string
			Set         bool
		}
	}
	if json.Unmarshal(answer, &list) != nil || len(list.Result) == 0 {
		return nil
	}
	s := settings{}
	for _, one := range list.Result {
		s[one.Name] = one
	}
	for _, a := range advices {
		if a.holds(s) {
			found = append(found, finding{a.level, a.text, a.page})
		}
	}
	return found
}

func (s settings) is(name, value string) bool { return s[name].Value == value }

// open reports whether management needs no token.
func (s settings) open() bool { return s.is("BROKER_OPEN_MANAGEMENT", "true") }

// remote reports whether other machines reach the listener.
func (s settings) remote() bool {
	host, _, err := net.SplitHostPort(s["BROKER_LISTEN"].Value)
	if err != nil || strings.EqualFold(host, "localhost") {
		return false
	}
	address, err := netip.ParseAddr(host)
	return err != nil || !address.Unmap().IsLoopback()
}

// duration reads a setting; 0: it is none.
func (s settings) duration(name string) time.Duration {
	d, err := time.ParseDuration(s[name].Value)
	if err != nil {
		return 0
	}
	return d
}

// temporary reports whether a folder is one of those that systems empty.
func temporary(folder string) bool {
	folder = path.Clean(strings.ReplaceAll(folder, `\`, "/"))
	for _, of := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		if folder == of || strings.HasPrefix(folder, of+"/") {
			return true
		}
	}
	return false
}
