package config

import "strings"

// nearest returns the candidate a person most likely meant by word, "" when none
// is near: at most a third of the letters may differ.
func nearest(word string, candidates []string) string {
	best, limit := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), c, limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// editDistance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b: the optimal string alignment distance. It gives
// up and returns limit where the lengths alone differ by that much.
func editDistance(a, b string, limit int) int {
	if abs(len(a)-len(b)) >= limit {
		return limit
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

func abs(n int) int { return max(n, -n) }
