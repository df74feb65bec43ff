package main

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// settings are all settings as they count, in the order of the page of settings, and the variables of tracing and
// error reports that are set. None has a secret: of those there is whether they are set, and of a URL no password.
func (c *config) settings() (out []apitype.Setting) {
	v := reflect.ValueOf(c).Elem()
	for f := range fields() {
		name := f.Tag.Get("env")
		s := apitype.Setting{Name: name, Default: cmp.Or(f.Tag.Get("envDefault"), f.Tag.Get("default")), Set: c.given[name],
			Secret: f.Tag.Get("secret") == "true", Meaning: f.Tag.Get("doc")}
		if !s.Secret {
			s.Value = withoutPassword(textOf(v.FieldByIndex(f.Index)))
		}
		out = append(out, s)
	}
	for i := range out {
		switch out[i].Name { // those without a value of their own follow others
		case "BROKER_OPEN_MANAGEMENT":
			out[i].Value = fmt.Sprint(c.openManagement())
		case "BROKER_DRAIN_DELAY":
			out[i].Value = durationText(c.drainDelay())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.otel)) { // a header of an exporter may be a token
		out = append(out, apitype.Setting{Name: name, Set: c.otel[name] != "", Secret: true, Meaning: "Traces."})
	}
	if c.reports.DSN != "" {
		out = append(out, apitype.Setting{Name: sentryDSN, Set: true, Secret: true, Meaning: "Error reports."})
	}
	return out
}

// textOf writes a value as the environment has it.
func textOf(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return durationText(x)
	case []time.Duration:
		texts := make([]string, len(x))
		for i, d := range x {
			texts[i] = durationText(d)
		}
		return strings.Join(texts, ",")
	case []string:
		return strings.Join(x, ",")
	}
	if v.Kind() == reflect.Pointer { // settings says what it stands for
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// durationText writes a duration without units of nothing: 720h, not 720h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// withoutPassword leaves out who logs in at a URL, and the password.
func withoutPassword(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	authority, path, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if !ok || at < 0 {
		return text
	}
	return scheme + "://(left out)" + strings.TrimSuffix(authority[at:]+"/"+path, "/")
}
