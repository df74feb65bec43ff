package problem

import "strings"

// farthest is how many letters may be wrong in a name for Nearest.
const farthest = 2

// Nearest returns the known name that a name was probably meant to be, "" where
// none is like it: with up to two letters too many, too few or wrong, or a part
// of it. Upper and lower case are the same. It is for the detail of a refusal.
func Nearest(name string, known []string) string {
	best, least := "", farthest+1
	name = strings.ToLower(name[:min(len(name), 64)])
	for _, k := range known {
		lower := strings.ToLower(k)
		if d := edits(name, lower); d < least && d < len(lower) {
			best, least = k, d
		} else if best == "" && len(name) > 2 && strings.Contains(lower, name) {
			best = k
		}
	}
	return best
}

// edits is the least number of letters to insert, remove or replace in a that
// makes b of it (Levenshtein's distance), one row of the table at a time.
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
