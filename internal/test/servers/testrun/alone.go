//go:build unix

package main

import (
	"regexp"
	"slices"
	"strings"
)

// mostAlone bounds the tests that get a second run: more of them are no accident.
const mostAlone = 3

// suspects returns the tests, by package, that may have failed because the machine was busy: a few, with no
// data race, no panic and no end of time anywhere. They are run again when nothing else runs. A test
// that fails then, too, has failed, and one that passes is named at the end of the run, behind its first output:
// it needs a machine that is fast, or found something rare, and has to be looked at.
func (s *summary) suspects() map[string][]string {
	found, n := map[string][]string{}, 0
	for pkg, failed := range s.broken {
		for _, test := range failed {
			root, _, _ := strings.Cut(test, "/")
			if !slices.Contains(found[pkg], root) {
				found[pkg] = append(found[pkg], root)
				n++
			}
		}
	}
	if s.unsound || n > mostAlone {
		return nil
	}
	return found
}

// onlyThese is the regular expression, for go test -run, of exactly these tests.
func onlyThese(tests []string) string {
	quoted := make([]string, len(tests))
	for i, test := range tests {
		quoted[i] = regexp.QuoteMeta(test)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// passedAlone takes the failures of a package back that a second run did not have.
func (s *summary) passedAlone(pkg string, tests []string, second *summary) {
	if !second.ok() {
		return
	}
	s.failed -= len(s.broken[pkg])
	delete(s.broken, pkg)
	for _, test := range tests {
		s.alone = append(s.alone, pkg+" "+test)
	}
	s.packages[pkg] = second.packages[pkg]
	if s.failed == 0 {
		s.exit = nil
	}
}
