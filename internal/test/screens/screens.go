// Package screens tells tests of the dashboard which pages they forget: the table of routes has all of them.
package screens

import (
	"regexp"
	"slices"
	"strings"
)

// Files are routes of the dashboard that are files, or lead elsewhere: a person looks at none of them.
var Files = []string{"/ui/style.css", "/ui/icon.svg", "/ui/script.js", "/ui/portal", "/ui/dlq/export",
	"/ui/channel/{channel}/message/{message}/raw", "/ui/bench/report"}

var variable = regexp.MustCompile(`\\\{\w+\\\}`)

// Missed returns those of routes (paths, with their variables in braces) to which no address of asked leads.
func Missed(routes, asked []string) (missed []string) {
	seen := map[string]bool{}
	for _, address := range asked {
		path, _, _ := strings.Cut(address, "?")
		for _, route := range routes {
			of := regexp.MustCompile("^" + variable.ReplaceAllString(regexp.QuoteMeta(route), "[^/]+") + "$")
			seen[route] = seen[route] || of.MatchString(path)
		}
	}
	for _, route := range routes {
		if !seen[route] && !slices.Contains(missed, route) {
			missed = append(missed, route)
		}
	}
	return missed
}
