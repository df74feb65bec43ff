//go:build race

package simulation

// defaultSeeds takes about ten seconds of one core with the race detector.
const defaultSeeds = 200
