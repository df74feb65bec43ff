//go:build !race

package simulation

// defaultSeeds takes about four minutes of one core.
const defaultSeeds = 1000

// tries is how often a seed runs that failed once: its history differs in detail each time.
const tries = 5
