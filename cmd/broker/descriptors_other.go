//go:build !unix

package main

// maxDescriptors returns 0: the limit of this system is unknown.
func maxDescriptors() int { return 0 }

// ignoreFileLimit does nothing: this system has no such signal.
func ignoreFileLimit() {}
