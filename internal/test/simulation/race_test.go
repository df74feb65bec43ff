//go:build race

package simulation

// defaultSeeds takes about a minute of one core with the race detector.
const defaultSeeds = 40

// tries is how often a seed runs that failed once.
const tries = 1
