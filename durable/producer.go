package durable

import (
	"context"
	"fmt"
)

// columns are those of the table producers that the copies of the catalogue have.
func (p *Producer) columns() columns {
	return columns{
		{"no", &p.No},
		{"id", asBytes{&p.ID}},
		{"name", &p.Name},
		{"token", asBytes{&p.Token}},
		{"changed_ms", asMillis{&p.ChangedAt}},
		{"version", &p.Version},
		{"publish_secret", asBytes{&p.PublishSecret}},
		{"deleted_no <> 0", &p.Deleted},
		{"COALESCE(settings, '')", asBytes{&p.Settings}},
		{"former_token", asBytes{&p.FormerToken}},
		{"former_until_ms", &p.FormerUntilMs},
	}
}

// made are the columns of a new row, and changed those of one that a Put changes.
func (p *Producer) made() columns {
	return p.columns().only("no", "id", "name", "token", "changed_ms", "version")
}

func (p *Producer) changed() columns {
	return p.columns().only("name", "token", "changed_ms", "version", "former_token", "former_until_ms")
}

var (
	fromProducers = `
SELECT` + new(Producer).columns().names() + `
FROM producers`

	selectProducer = fromProducers + `
WHERE id = ?
  AND deleted_no = 0`

	selectProducersSince = fromProducers + `
WHERE version > ?
ORDER BY no`

	insertProducer = new(Producer).made().insert("producers")

	updateProducer = `
UPDATE producers
SET` + new(Producer).changed().sets() + `
WHERE no = ?`
)

const (
	selectProducerMax = `
SELECT COALESCE(MAX(no), 0)
FROM producers`

	updateSender = `
UPDATE producers
SET
    publish_secret = ?,
    settings = ?
WHERE no = ?`
)

// maxSettingsBytes is the width of the column.
const maxSettingsBytes = 4096

// PutProducer creates or updates a producer. created is true for exactly one of several
// racing creators.
func (s *Store) PutProducer(ctx context.Context, p Put) (out Producer, created bool, err error) {
	if err := p.valid(); err != nil {
		return Producer{}, false, err
	}
	err = s.put(ctx, "put producer", func(ctx context.Context, c change) (err error) {
		out, created, err = putResource(ctx, c, p, resource[Producer]{
			max: selectProducerMax, used: usedProducer,
			find: func() (Producer, error) {
				return selectOne[Producer](ctx, c.tx, selectProducer, []byte(p.ID))
			},
			merge: func(out *Producer, _ bool) error { return p.mergeSender(out) },
			write: func(old, out *Producer, created bool) error {
				return s.writeProducer(ctx, c, p, old, out, created)
			},
		})
		return err
	})
	if err != nil {
		return Producer{}, false, err
	}
	return out, created, nil
}

func (p *Producer) common() common {
	return common{&p.No, &p.ID, &p.Name, &p.Token, &p.ChangedAt, &p.Version, &p.Former}
}

// mergeSender sets what a Put says of a producer alone.
func (p Put) mergeSender(out *Producer) (err error) {
	if p.PublishSecret != nil {
		out.PublishSecret = *p.PublishSecret
	}
	if p.Settings == nil {
		return nil
	}
	if out.Settings, err = p.Settings(out.Settings); err == nil && len(out.Settings) > maxSettingsBytes {
		err = fmt.Errorf("%w: the settings of a producer have at most %d bytes", ErrRejected, maxSettingsBytes)
	}
	return err
}

func (s *Store) writeProducer(ctx context.Context, c change, p Put, old, out *Producer, created bool) (err error) {
	stored := seal(ctx, out)
	if created {
		err = exec(ctx, c.tx, insertProducer, stored.made().fields()...)
	} else {
		err = exec(ctx, c.tx, updateProducer, append(stored.changed().fields(), out.No)...)
	}
	if err != nil || p.PublishSecret == nil && p.Settings == nil {
		return err
	}
	err = exec(ctx, c.tx, updateSender, []byte(stored.PublishSecret), []byte(stored.Settings), out.No)
	if err != nil || out.Settings == old.Settings {
		return err
	}
	return s.followSettings(ctx, c, p, out.No, out.Settings)
}
