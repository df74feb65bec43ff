package main

import (
	_ "embed" // the list
	"slices"
	"strings"
)

//go:embed unseen.txt
var unseenText string

//go:embed malformed.txt
var malformedText string

// unmeant returns the differences that no line of a text begins: those lines are of requests that a test malforms on
// purpose, and that the broker takes or refuses in part. Lines that begin with # are comments.
func unmeant(differences []string, text string) []string {
	meant, _ := excused(text)
	return slices.DeleteFunc(differences, func(one string) bool {
		for begin := range meant {
			if strings.HasPrefix(one, begin) {
				return true
			}
		}
		return false
	})
}

// excused returns the sentences of a text, a line each; lines that begin with # are comments. A line that begins with
// a question mark is of what some runs have and others have not: it is also in rare.
func excused(text string) (all, rare items) {
	all, rare = items{}, items{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		of, ok := strings.CutPrefix(line, "? ")
		if ok {
			rare.add(of)
		}
		all.add(of)
	}
	return all, rare
}

// unexplained compares what is in the document and never in traffic with the list of excuses.
func unexplained(said, seen items, text string) (out []string) {
	excuses, rare := excused(text)
	missing := items{}
	for _, one := range said.without(seen) {
		missing.add(one)
	}
	for _, one := range missing.without(excuses) {
		out = append(out, "in the document and never in traffic: "+one)
	}
	for _, one := range excuses.without(missing) {
		if said[one] && rare[one] {
			continue
		}
		if said[one] {
			out = append(out, "unseen.txt names it, and it is in traffic: "+one)
		} else {
			out = append(out, "unseen.txt names it, and the document does not: "+one)
		}
	}
	slices.Sort(out)
	return out
}
