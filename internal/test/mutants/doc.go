// Package mutants has planted mistakes: each patch is one, with the test that has to fail while it is there. make
// mutants plants them one by one. The tests of this package keep the patches applicable.
package mutants
