package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// answersFile has the answers that the tests of package api store: a line with the request, one with status and
// media type, the body, and an empty line.
const answersFile = "api/testdata/answers.txt"

var (
	maskedID   = regexp.MustCompile(`<id (\d+)>`)
	maskedTime = regexp.MustCompile(`0000-00-00T00:00:00(\.000)?Z`)
)

// An answers is the stored answers: by route and status, the first one.
type answers map[string]json.RawMessage

// readAnswers reads the answers to the routes.
func readAnswers(root string) (answers, error) {
	text, err := os.ReadFile(filepath.Join(root, answersFile))
	if err != nil {
		return nil, err
	}
	out := answers{}
	for entry := range strings.SplitSeq(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[2], "{") {
			continue
		}
		status, _, _ := strings.Cut(lines[1], " ")
		name := routeOf(lines[0])
		if n, err := strconv.Atoi(status); name == "" || err != nil || n >= 400 || out[name+" "+status] != nil {
			continue
		}
		body := unmasked(lines[2])
		if json.Valid([]byte(body)) {
			out[name+" "+status] = json.RawMessage(body)
		}
	}
	return out, nil
}

// unmasked puts an ID and a time where the tests have left them out.
func unmasked(body string) string {
	body = maskedID.ReplaceAllStringFunc(body, func(id string) string {
		n, _ := strconv.Atoi(maskedID.FindStringSubmatch(id)[1])
		return "06gvk862do00000000" + strconv.FormatInt(int64(36+n), 32)
	})
	body = maskedTime.ReplaceAllString(body, "2026-01-31T15:04:05${1}Z")
	return strings.NewReplacer("<ms>", "1769871845100", "s3cret", "secret").Replace(body)
}

// routeOf returns the route that takes a request, "POST /channel/c/pause"; "" for none.
func routeOf(request string) string {
	method, path, _ := strings.Cut(request, " ")
	r, ok := apitype.Taking(method, path)
	if !ok {
		return ""
	}
	return r.Method + " " + r.Path
}
