package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"

	"github.com/penstock-broker/penstock/internal/feature/reports"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

const (
	// settingPrefix begins the name of each setting.
	settingPrefix = "BROKER_"
	// fileSuffix turns the name of a variable into that of a file with the value, as mounted secrets
	// need it.
	fileSuffix = "_FILE"
)

// readConfig reads and checks the settings. Its error is a settingsError with all mistakes: unknown
// names, files that cannot be read, values of the wrong form, out of range, or that do not go
// together, and what more finds. It never shows the value of a secret.
func readConfig(environ []string, more ...func(*config, *faults)) (config, error) {
	var c config
	f := faults{given: map[string]bool{}, wrong: map[string]bool{}}
	values := c.gather(environ, &f)
	c.parse(values, &f)
	c.derive()
	c.given = f.given
	c.check(&f)
	for _, check := range more {
		check(&c, &f)
	}
	return c, f.err()
}

// gather returns the values of the settings in the environment.
func (c *config) gather(environ []string, f *faults) map[string]string {
	names, known := settingNames()
	values := map[string]string{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		base, fromFile := strings.CutSuffix(name, fileSuffix)
		switch {
		case strings.HasPrefix(name, tracing.Prefix):
			if c.otel == nil {
				c.otel = map[string]string{}
			}
			c.otel[name] = value
		case strings.HasPrefix(name, reports.Prefix):
			c.readReports(name, value, f)
		case !strings.HasPrefix(name, settingPrefix):
			if resemblesSetting(name, known) {
				c.misnamed = append(c.misnamed, name)
			}
		case fromFile && known[base] && !known[name]:
			content, err := readSetting(value)
			if err != nil {
				f.refuse(base, "%s: %v", name, err)
			}
			if slices.ContainsFunc(environ, func(l string) bool { return strings.HasPrefix(l, base+"=") && l != base+"=" }) {
				f.refuse(base, "%s and %s are both set", base, name)
			}
			values[base] = content
		case isServiceLink(name, value):
			c.serviceLinks = append(c.serviceLinks, name)
		case !known[name]:
			f.refuse(name, "%s is no setting of this broker%s", name, suggestion(name, names))
		case value != "": // an empty variable counts as absent
			values[name] = value
		}
	}
	for name := range values {
		f.given[name] = true
		if f.wrong[name] {
			delete(values, name)
		}
	}
	return values
}

// parse sets the fields. A field whose value has the wrong form gets its default, so that the checks
// report nothing that follows from it.
func (c *config) parse(values map[string]string, f *faults) {
	options := env.Options{Environment: values, FuncMap: map[reflect.Type]env.ParserFunc{
		reflect.TypeFor[time.Duration](): func(text string) (any, error) {
			return quantity.Duration(strings.TrimSpace(text))
		},
	}}
	var all env.AggregateError
	if !errors.As(env.ParseWithOptions(c, options), &all) {
		return
	}
	for _, err := range all.Errors {
		var p env.ParseError
		_ = errors.As(err, &p) // a value is the only thing that can be wrong
		for field := range fields() {
			if name := field.Tag.Get("env"); field.Name == p.Name {
				f.refuse(name, "%s: %s is not a %s", name, shownValue(field, values[name]), form(field.Type))
				delete(values, name)
			}
		}
	}
	_ = env.ParseWithOptions(c, options) // the defaults have the right form
}

// maxSettingBytes bounds a file with the value of a setting.
const maxSettingBytes = 64 << 10

// readSetting returns the value in a file, without its final line break. A file without a value is
// an error, unlike an empty variable: a mounted secret that was not filled must neither open
// management nor select an embedded store.
func readSetting(path string) (string, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", errors.New("the file cannot be read")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSettingBytes+1))
	switch value := strings.TrimRight(string(content), "\r\n"); {
	case err != nil:
		return "", errors.New("the file cannot be read")
	case len(content) > maxSettingBytes:
		return "", fmt.Errorf("the file has more than %d bytes, too many for a setting", maxSettingBytes)
	case strings.TrimSpace(value) == "":
		return "", errors.New("the file is empty")
	default:
		return value, nil
	}
}

// shownValue is a value as an error shows it.
func shownValue(field reflect.StructField, value string) string {
	if field.Tag.Get("secret") == "true" {
		return "the value"
	}
	return strconv.Quote(value)
}

// settingNames returns the names of all settings, in the order of the page.
func settingNames() (names []string, known map[string]bool) {
	known = map[string]bool{}
	for f := range fields() {
		name := f.Tag.Get("env")
		names = append(names, name)
		known[name] = true
	}
	return names, known
}

func fields() func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		t := reflect.TypeFor[config]()
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("env") != "" && !yield(f) {
				return
			}
		}
	}
}

// resemblesSetting reports whether a variable without the prefix is probably meant as a setting: the name of
// the product or small letters stand in place of it. Such a variable may belong to something else, so
// it is no mistake.
func resemblesSetting(name string, known map[string]bool) bool {
	upper := strings.ToUpper(name)
	if rest, ok := strings.CutPrefix(upper, "PENSTOCK_"); ok {
		upper = settingPrefix + rest
	}
	return known[upper] || known[strings.TrimSuffix(upper, fileSuffix)]
}

// familiar are names that people know from other programs, and parts of such names, with the settings that
// have that meaning here.
var familiar = map[string]string{
	"PORT": "LISTEN", "ADDR": "LISTEN", "ADDRESS": "LISTEN", "HOST": "LISTEN", "HOSTNAME": "LISTEN", "BIND": "LISTEN",
	"MYSQL": "MYSQL_DSN", "MARIADB": "MYSQL_DSN", "DATABASE": "MYSQL_DSN", "DB": "MYSQL_DSN", "DSN": "MYSQL_DSN",
	"SQL":   "MYSQL_DSN",
	"REDIS": "REDIS_URL", "CACHE": "REDIS_URL", "SENTINEL": "REDIS_MASTER",
	"DATADIR": "DATA_DIR", "STORAGE": "DATA_DIR", "PATH": "DATA_DIR", "SQLITE": "DATA_DIR",
	"TOKEN": "ADMIN_TOKEN", "PASSWORD": "ADMIN_TOKEN", "SECRET": "ADMIN_TOKEN", "KEY": "ADMIN_TOKEN",
	"URL": "PUBLIC_URL", "HOSTS": "ALLOWED_HOSTS", "ORIGINS": "ALLOWED_HOSTS", "SEEDS": "SEED_FILE",
	"TIMEOUT": "DELIVERY_TIMEOUT", "VISIBILITY": "STOP_TIMEOUT", "GRACE": "DRAIN_TIMEOUT", "SHUTDOWN": "DRAIN_TIMEOUT",
	"RETRY": "MAX_RETRIES", "RETRIES": "MAX_RETRIES", "ATTEMPTS": "MAX_RETRIES", "JITTER": "RETRY_JITTER",
	"BODY": "MAX_BODY", "PAYLOAD": "MAX_BODY", "SIZE": "MAX_BODY", "WORKERS": "PUSH_CONCURRENCY",
	"LOG": "LOG_LEVEL", "LEVEL": "LOG_LEVEL", "DEBUG": "LOG_LEVEL", "VERBOSE": "LOG_LEVEL",
	"SMTP": "ALERT_SMTP_URL", "MAIL": "ALERT_SMTP_URL", "EMAIL": "ALERT_TO", "WEBHOOK": "ALERT_WEBHOOK_URL",
	"RATE": "RATE_LIMIT",
}

// suggestion names the setting that was probably meant.
func suggestion(name string, names []string) string {
	short := strings.TrimPrefix(name, settingPrefix)
	known := make([]string, len(names))
	for i, n := range names {
		known[i] = strings.TrimPrefix(n, settingPrefix)
	}
	meant := cmp.Or(familiar[short], problem.Nearest(short, known))
	if base, ok := strings.CutSuffix(short, fileSuffix); ok && meant == "" {
		if meant = cmp.Or(familiar[base], problem.Nearest(base, known)); meant != "" {
			meant += fileSuffix
		}
	}
	for word := range strings.SplitSeq(short, "_") {
		meant = cmp.Or(meant, familiar[word])
	}
	if meant == "" {
		return "; docs/configuration.md lists the settings"
	}
	return "; did you mean " + settingPrefix + meant + "?"
}

func form(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration like 30s, 1m30s or 1d"
	case t == reflect.TypeFor[[]time.Duration]():
		return "comma-separated list of durations like 5s,30s,60s"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Pointer:
		return form(t.Elem())
	case t.Kind() == reflect.Bool:
		return "truth value (true or false)"
	}
	return t.String()
}
