package durable

import "context"

// columns are those of the table channels.
func (c *Channel) columns() columns {
	return columns{
		{"no", &c.No},
		{"id", asBytes{&c.ID}},
		{"name", &c.Name},
		{"token", asBytes{&c.Token}},
		{"audience", &c.Audience},
		{"changed_ms", asMillis{&c.ChangedAt}},
		{"version", &c.Version},
		{"(paused & 1) <> 0", &c.Paused},
		{"(paused & 2) <> 0", &c.GroupPaused},
		{"intake", asBytes{&c.Intake}},
		{"deleted_no <> 0", &c.Deleted},
		{"shape", &c.Shape},
		{"group_id", asBytes{&c.Group}},
		{"former_token", asBytes{&c.FormerToken}},
		{"former_until_ms", &c.FormerUntilMs},
	}
}

// made are the columns of a new row, and changed those of one that a Put changes.
func (c *Channel) made() columns {
	return c.columns().only("no", "id", "name", "token", "audience", "changed_ms", "version")
}

func (c *Channel) changed() columns {
	return c.columns().only("name", "token", "changed_ms", "version", "former_token", "former_until_ms")
}

var (
	fromChannels = `
SELECT` + new(Channel).columns().names() + `
FROM channels`

	selectChannel = fromChannels + `
WHERE id = ?
  AND deleted_no = 0`

	selectChannelsSince = fromChannels + `
WHERE version > ?
ORDER BY no`

	insertChannel = new(Channel).made().insert("channels")

	updateChannel = `
UPDATE channels
SET` + new(Channel).changed().sets() + `
WHERE no = ?`
)

const (
	selectChannelMax = `
SELECT COALESCE(MAX(no), 0)
FROM channels`

	updateIntake = `
UPDATE channels
SET intake = ?
WHERE no = ?`

	// changed_ms stays: clients see no change of the channel when it gets a consumer, so
	// their preconditions must still hold.
	growAudience = `
UPDATE channels
SET
    audience = ?,
    version = ?
WHERE no = ?`

	growShape = `
UPDATE channels
SET
    shape = shape + 1,
    version = ?
WHERE no = ?`
)

// PutChannel creates or updates a channel. created is true for exactly one of several
// racing creators.
func (s *Store) PutChannel(ctx context.Context, p Put) (out Channel, created bool, err error) {
	if err := p.valid(); err != nil {
		return Channel{}, false, err
	}
	err = s.put(ctx, "put channel", func(ctx context.Context, c change) (err error) {
		out, created, err = putResource(ctx, c, p, resource[Channel]{
			max: selectChannelMax, used: usedChannel,
			find: func() (Channel, error) {
				return selectOne[Channel](ctx, c.tx, selectChannel, []byte(p.ID))
			},
			merge: func(out *Channel, _ bool) (err error) {
				if p.Intake != nil {
					out.Intake, err = p.Intake(out.Intake)
				}
				if err != nil {
					return err
				}
				return c.join(ctx, p, out)
			},
			write: func(old, out *Channel, created bool) error { return c.writeChannel(ctx, p, old, out, created) },
		})
		return err
	})
	if err != nil {
		return Channel{}, false, err
	}
	return out, created, nil
}

func (c *Channel) common() common {
	return common{&c.No, &c.ID, &c.Name, &c.Token, &c.ChangedAt, &c.Version, &c.Former}
}

func (c change) writeChannel(ctx context.Context, p Put, old, out *Channel, created bool) (err error) {
	if created {
		err = exec(ctx, c.tx, insertChannel, seal(ctx, out).made().fields()...)
	} else {
		err = exec(ctx, c.tx, updateChannel, append(seal(ctx, out).changed().fields(), out.No)...)
	}
	if err == nil {
		err = c.joined(ctx, old, out)
	}
	if err != nil || p.Intake == nil {
		return err
	}
	return exec(ctx, c.tx, updateIntake, []byte(out.Intake), out.No)
}
