//go:build !race

package simulation

// defaultSeeds takes about half a minute of one core.
const defaultSeeds = 3000
