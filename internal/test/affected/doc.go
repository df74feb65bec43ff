// Command affected runs the tests of what a branch changes, without real servers.
//
//	affected [-base branch] [-list] [-skip regexp] [argument of go test ...]
//
// It compares the files of the work tree, those that are not committed included, with the commit
// where the branch left base (main). Each package with a changed file is tested, and so is each
// package that imports one of them, in its code or in its tests: everything else compiles and
// behaves as before. Of the end-to-end tests, which start brokers, it runs a few on the embedded
// stores, and of the simulation some seeds. The packages that read the whole tree (shape, pages) always run.
//
// The answer is quick and not complete: `make test` decides.
package main
