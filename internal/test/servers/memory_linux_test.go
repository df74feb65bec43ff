package servers

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFolderInMemoryIsMadeWhereThereIsRoom(t *testing.T) {
	require.Empty(t, MemoryFolder(math.MaxUint64), "no machine has so much")
	require.Positive(t, availableMemory())
	path := MemoryFolder(1)
	if path == "" { // this machine has no /dev/shm to write to
		return
	}
	require.Equal(t, memoryDir, filepath.Dir(path))
	require.NoError(t, os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
	f := memoryFolders[len(memoryFolders)-1]
	require.NoError(t, f.remove())
	require.NoDirExists(t, path)
}
