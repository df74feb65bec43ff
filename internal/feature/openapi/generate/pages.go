package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A code is a line of the tables of errors, docs/errors*.md.
type code struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	When   string `json:"when"`
}

// String returns the line of x-codes.
func (c code) String() string { return strconv.Itoa(c.Status) + " " + c.Code }

var (
	lineOfCode  = regexp.MustCompile("(?m)^\\| (\\d{3}) \\| `([a-z0-9_]+)` \\| (.*) \\|$")
	lineOfRoute = regexp.MustCompile("(?m)^\\| \\[`([A-Z]+ [^`]+)`\\]\\(([a-z-]+)\\.md(#[^)]*)\\)")
	link        = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// readCodes reads the codes, by status.
func readCodes(root string) (out []code, err error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/errors*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for _, m := range lineOfCode.FindAllStringSubmatch(string(text), -1) {
			status, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			out = append(out, code{status, m[2], link.ReplaceAllString(m[3], "$1")})
		}
	}
	slices.SortStableFunc(out, func(a, b code) int { return a.Status - b.Status })
	return out, nil
}

// A section is where the documentation describes a route.
type section struct{ page, anchor string }

// readSections reads the sections of the routes from docs/routes.md.
func readSections(root string) (map[string]section, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs/routes.md"))
	if err != nil {
		return nil, err
	}
	out := map[string]section{}
	for _, m := range lineOfRoute.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = section{m[2], m[3]}
	}
	return out, nil
}

// titleOf returns the title of a page and what its first paragraph says.
func titleOf(root, page string) (title string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", page+".md"))
	if err != nil {
		return "", err
	}
	title, _, _ = strings.Cut(string(text), "\n")
	title, ok := strings.CutPrefix(title, "# ")
	if !ok {
		return "", fmt.Errorf("docs/%s.md has no title", page)
	}
	return title, nil
}
