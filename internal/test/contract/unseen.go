package main

import (
	_ "embed" // the list
	"slices"
	"strings"
)

//go:embed unseen.txt
var unseenText string

// excused returns the sentences of a text, a line each; lines that begin with # are comments.
func excused(text string) items {
	out := items{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out.add(line)
		}
	}
	return out
}

// unexplained compares what is in the document and never in traffic with the list of excuses.
func unexplained(said, seen, excuses items) (out []string) {
	missing := items{}
	for _, one := range said.without(seen) {
		missing.add(one)
	}
	for _, one := range missing.without(excuses) {
		out = append(out, "in the document and never in traffic: "+one)
	}
	for _, one := range excuses.without(missing) {
		if said[one] {
			out = append(out, "unseen.txt names it, and it is in traffic: "+one)
		} else {
			out = append(out, "unseen.txt names it, and the document does not: "+one)
		}
	}
	slices.Sort(out)
	return out
}
