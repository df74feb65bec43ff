package durable

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Tokens, secrets and credentials, and the secrets that brokers share, are sealed in their columns where Store.UseKeys
// has set a key: rows are opened as they are read, and sealed as they are written, so all other code sees them as they
// are. The keys are in the context of a transaction (Store.run), because each read of a row in it needs them.

// A guarded row has fields that are sealed in the store.
type guarded interface {
	// sealing returns the kind and number of the row, of which its sealed fields are, and these by column.
	sealing() (of string, fields []sealedField)
}

type sealedField struct {
	column   string
	text     *string
	compared bool // a token that is only compared, of which a digest is enough
}

func (p *Producer) sealing() (string, []sealedField) {
	return "producer " + number(p.No), []sealedField{{"token", &p.Token, true}, {"former_token", &p.FormerToken, true},
		{"publish_secret", &p.PublishSecret, false}, {"settings", &p.Settings, false}}
}

func (c *Channel) sealing() (string, []sealedField) {
	return "channel " + number(c.No), []sealedField{
		{"token", &c.Token, !ident.Reserved(c.ID)}, // nobody is shown that of a channel of the broker, or gives it another
		{"former_token", &c.FormerToken, !ident.Reserved(c.ID)}}
}

func (k *Consumer) sealing() (string, []sealedField) {
	return "consumer " + number(k.No), []sealedField{{"token", &k.Token, false},
		{"former_token", &k.FormerToken, false}, {"policy", &k.Policy, false}, {"since_policy", &k.SincePolicy, false}}
}

func (k *SQSKey) sealing() (string, []sealedField) {
	return "access key " + k.ID, []sealedField{{"secret", &k.Secret, false}}
}

func number(no uint32) string { return strconv.FormatUint(uint64(no), 10) }

// ErrKeys means that the store has texts that the keys of this process do not open.
var ErrKeys = errors.New("durable: the store has tokens and secrets that cannot be decrypted")

type keysKey struct{}

// withKeys returns a context in which rows are opened.
func (s *Store) withKeys(ctx context.Context) context.Context {
	if s.keys == nil {
		return ctx
	}
	return context.WithValue(ctx, keysKey{}, s.keys)
}

func keysOf(ctx context.Context) *atrest.Keys {
	keys, _ := ctx.Value(keysKey{}).(*atrest.Keys)
	return keys
}

// unseal opens the fields of a row that was read, if it is one that has some.
func unseal(ctx context.Context, row any) error {
	g, ok := row.(guarded)
	if !ok || ctx.Value(asStored{}) != nil {
		return nil
	}
	return openRow(keysOf(ctx), g)
}

func openRow(keys *atrest.Keys, row guarded) error {
	of, fields := row.sealing()
	for _, f := range fields {
		if !atrest.Sealed(*f.text) {
			continue
		}
		plain, err := keys.Open(*f.text, of+" "+f.column)
		if err != nil {
			return fmt.Errorf("%w: the %s of %s: %w", ErrKeys, f.column, of, err)
		}
		*f.text = plain
	}
	return nil
}

// seal returns a copy of a row as it is stored.
func seal[T any, P interface {
	*T
	guarded
}](ctx context.Context, row *T) *T {
	out := *row
	sealRow(keysOf(ctx), P(&out))
	return &out
}

func sealRow(keys *atrest.Keys, row guarded) {
	of, fields := row.sealing()
	for _, f := range fields {
		if f.compared {
			*f.text = keys.Kept(*f.text)
		}
		*f.text = keys.Seal(*f.text, of+" "+f.column)
	}
}
