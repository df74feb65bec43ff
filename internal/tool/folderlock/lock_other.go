//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package folderlock

import "os"

// lock does not lock on this system: the operator must ensure that only one broker uses the folder.
func lock(*os.File) error { return nil }
