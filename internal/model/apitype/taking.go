package apitype

import "strings"

// Taking returns the route that takes a request; path may have a query. A route with fewer parameters wins.
func Taking(method, path string) (best Route, ok bool) {
	path, _, _ = strings.Cut(path, "?")
	got := strings.Split(path, "/")
	for _, r := range routes {
		parts := strings.Split(r.Path, "/")
		if r.Method != method || len(parts) != len(got) {
			continue
		}
		same := true
		for i, part := range parts {
			same = same && (part == got[i] || strings.HasPrefix(part, "{") && got[i] != "")
		}
		if same && (!ok || strings.Count(r.Path, "{") < strings.Count(best.Path, "{")) {
			best, ok = r, true
		}
	}
	return best, ok
}
