package config

import "strings"

// Nearest returns the known property whose name is closest to a name that is
// not known, "" if none is near enough to be meant.
func Nearest(scope Scope, name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	best, bestDistance := "", max(2, len(name)/5)+1
	for p := range All(scope) {
		if d := distance(name, p.Name, bestDistance); d < bestDistance {
			best, bestDistance = p.Name, d
		}
	}
	return best
}

// distance counts the edits between two words, a swap of neighbours being one
// (optimal string alignment). It may stop at limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
