package problem

import "strings"

// farthest is the largest edit distance of a name that Nearest accepts.
const farthest = 2

// Nearest returns the known name that is most similar to a misspelled name, or "". A known
// name is similar when up to two letters are inserted, missing or replaced, or when it
// contains the misspelled name. Case is ignored. Refusals suggest the name in their detail.
func Nearest(name string, known []string) string {
	best, least := "", farthest+1
	name = strings.ToLower(name[:min(len(name), 64)])
	for _, k := range known {
		lower := strings.ToLower(k)
		if d := edits(name, lower); d < least && d < len(lower) && 2*d <= max(len(name), len(lower)) {
			best, least = k, d
		} else if best == "" && len(name) > 2 && strings.Contains(lower, name) {
			best = k
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b: the least number of letters to insert,
// remove or replace. It computes one row of the table at a time.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			above := row[j]
			if a[i-1] != b[j-1] {
				diagonal++
			}
			row[j] = min(diagonal, above+1, row[j-1]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}

// leastPart is the length of a known name from which it counts inside one that is up to three times as
// long.
const leastPart = 5

// Inside returns the longest known name that a longer name contains, or "". Case is ignored. Refusals
// suggest it where Nearest finds nothing.
func Inside(name string, known []string) string {
	best := ""
	name = strings.ToLower(name[:min(len(name), 64)])
	for _, k := range known {
		if len(k) >= max(leastPart, len(name)/3, len(best)+1) && strings.Contains(name, strings.ToLower(k)) {
			best = k
		}
	}
	return best
}
