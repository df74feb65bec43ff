package accept

import (
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Gate stands between the messages of a submission and the store, where something else may take them
// instead (package standby). Most submissions have none.
type Gate interface {
	// Number gives message i its next ID. It reports false where the store may not have the message any
	// more: its outcome is ErrWithheld then.
	Number(i int, ids *ident.Generator) (id ident.ID, ok bool)
	// Ended is told what the store has made of message i.
	Ended(i int, err error)
}

// ErrWithheld is the outcome of a message that its gate keeps from the store.
var ErrWithheld = errors.New("accept: the message is kept from the store")

// A Watch is told of the transactions of published messages: of committer i the begin, and the end with
// the results of its messages.
type Watch interface {
	Begin(i int)
	End(i int, results []error)
}

// Watch tells w of the transactions. Call it before Run.
func (s *Submitter) Watch(w Watch) { s.committer.watch = w }
