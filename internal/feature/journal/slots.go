package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/penstock-broker/penstock/internal/tool/folderlock"
	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

// A data folder has one journal for each broker that used it at the same time, in the folders
// journal/0, journal/1 and so on. A broker locks the one that it writes, so two never share one.
// It also drains every other one that nobody has locked.
const (
	folder    = "journal"
	lockName  = "lock"
	idName    = "id"
	mostSlots = 64
)

// ErrInUse means that a living broker has a journal of the data folder.
var ErrInUse = errors.New("journal: a living broker uses the folder")

func slot(data string, n int) string { return filepath.Join(data, folder, strconv.Itoa(n)) }

// Open opens the first journal of a data folder that no other broker has, and creates it if needed.
func Open(data string, o Options) (*Journal, error) {
	for n := range mostSlots {
		dir := slot(data, n)
		for _, d := range []string{data, filepath.Join(data, folder), dir} {
			if err := privatefile.Folder(d); err != nil {
				return nil, fmt.Errorf("journal: %w", err)
			}
		}
		lock, err := folderlock.Take(dir, lockName)
		if errors.Is(err, folderlock.ErrInUse) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		j, err := openOwn(dir, lock, o)
		if errors.Is(err, ErrForeign) {
			continue
		}
		return j, err
	}
	return nil, fmt.Errorf("%w: all %d journals in %s are locked, or belong to another store", ErrInUse, mostSlots,
		filepath.Join(data, folder))
}

// openOwn opens a journal of this store. A message that is written behind those of another one
// would wait for ever.
func openOwn(dir string, lock *os.File, o Options) (*Journal, error) {
	j, err := openIn(dir, lock, o)
	if err != nil {
		return nil, err
	}
	if j.foreign {
		return nil, errors.Join(ErrForeign, j.Close())
	}
	return j, nil
}

// Left opens the journals of a data folder that have messages and that no broker has. busy reports
// whether a broker has another one. Those that belong to another store stay as they are: err
// contains ErrForeign for each.
func Left(data string, o Options) (left []*Journal, busy bool, err error) {
	for n := range mostSlots {
		dir := slot(data, n)
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		lock, e := folderlock.Take(dir, lockName)
		if errors.Is(e, folderlock.ErrInUse) {
			busy = true
			continue
		}
		var j *Journal
		if e == nil {
			j, e = openOwn(dir, lock, o)
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("journal: %s: %w", dir, e))
			continue
		}
		if len(j.parts) == 0 {
			err = errors.Join(err, j.Close())
			continue
		}
		left = append(left, j)
	}
	return left, busy, err
}

// identify returns the name of the journal in a folder, which its receipts contain, and makes one
// if there is none.
func identify(dir string) (id [4]byte, err error) {
	name := filepath.Join(dir, idName)
	if b, err := os.ReadFile(name); err == nil && len(b) == len(id) {
		return [4]byte(b), nil
	}
	_, _ = rand.Read(id[:]) // never fails
	// Without a flush: a name that is lost costs a look into the store for old receipts.
	if err := os.WriteFile(name, id[:], 0o600); err != nil {
		return id, fmt.Errorf("journal: %w", err)
	}
	return id, nil
}
