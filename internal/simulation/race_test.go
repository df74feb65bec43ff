//go:build race

package simulation

// defaultSeeds takes about a quarter of a minute of one core with the race detector.
const defaultSeeds = 300
