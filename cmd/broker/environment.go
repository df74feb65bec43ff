package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"
)

// fileSuffix turns the name of a variable into that of a file with the value, as mounted secrets
// need it.
const fileSuffix = "_FILE"

// readConfig reads and checks the settings. Its errors name variables and never
// show the value of a secret.
func readConfig(environ []string) (config, error) {
	var c config
	known, secret := variables()
	values := map[string]string{}
	var errs []error
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "BROKER_") {
			continue
		}
		if base, ok := strings.CutSuffix(name, fileSuffix); ok && known[base] && !known[name] {
			content, err := readSetting(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				continue
			}
			if slices.ContainsFunc(environ, func(l string) bool { return strings.HasPrefix(l, base+"=") && l != base+"=" }) {
				errs = append(errs, fmt.Errorf("%s and %s are both set", base, name))
			}
			values[base] = content
			continue
		}
		if isServiceLink(name, value) {
			c.serviceLinks = append(c.serviceLinks, name)
			continue
		}
		if !known[name] {
			errs = append(errs, fmt.Errorf("%s is no setting of this broker%s", name, suggestion(name, known)))
			continue
		}
		if value != "" { // an empty variable counts as absent
			values[name] = value
		}
	}
	if len(errs) > 0 {
		return c, errors.Join(errs...)
	}
	if err := env.ParseWithOptions(&c, env.Options{Environment: values}); err != nil {
		return c, describe(err, values, secret)
	}
	c.derive()
	return c, c.check()
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

// variables returns the names of all settings, and which of them are secret.
func variables() (known, secret map[string]bool) {
	known, secret = map[string]bool{}, map[string]bool{}
	for f := range fields() {
		known[f.Tag.Get("env")] = true
		secret[f.Tag.Get("env")] = f.Tag.Get("secret") == "true"
	}
	return known, secret
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

// suggestion names the setting that was probably meant.
func suggestion(name string, known map[string]bool) string {
	for k := range known {
		if strings.ReplaceAll(k, "_", "") == strings.ReplaceAll(strings.ToUpper(name), "_", "") || strings.HasPrefix(k, name) && len(k)-len(name) < 8 {
			return "; did you mean " + k + "?"
		}
	}
	return ""
}

// describe turns an error of the library into one with the name of the variable and the value,
// unless the value is secret.
func describe(err error, values map[string]string, secret map[string]bool) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return errors.New("the settings cannot be read")
	}
	var errs []error
	for _, one := range all.Errors {
		var p env.ParseError
		if !errors.As(one, &p) {
			errs = append(errs, one)
			continue
		}
		for f := range fields() {
			if f.Name != p.Name {
				continue
			}
			name := f.Tag.Get("env")
			if secret[name] {
				errs = append(errs, fmt.Errorf("%s has a value of the wrong form", name))
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %q is not a %s", name, values[name], form(f.Type)))
		}
	}
	return errors.Join(errs...)
}

func form(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration like 30s or 1m30s"
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
