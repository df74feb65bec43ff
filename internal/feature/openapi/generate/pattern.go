package main

import "strings"

// fits reports whether a route, "GET /channels", is one of those that a list names. The list has patterns with
// commas between; an asterisk stands for any letters, and a pattern that begins with "-" takes routes out again.
func fits(list, route string) (found bool) {
	for pattern := range strings.SplitSeq(list, ",") {
		pattern = strings.TrimSpace(pattern)
		if without, ok := strings.CutPrefix(pattern, "-"); ok {
			found = found && !same(without, route)
			continue
		}
		found = found || same(pattern, route)
	}
	return found
}

// same reports whether a route is of a pattern.
func same(pattern, route string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(route, parts[0])
	if len(parts) == 1 {
		return ok && rest == ""
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		if !ok {
			return false
		}
		_, rest, ok = strings.Cut(rest, part)
	}
	return ok && strings.HasSuffix(rest, last)
}
