package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// A channel may carry a group, by the ID of the group. Every change of a group and of what carries it is
// a change of the catalogue, so a count of the channels of a group is exact in the transaction that makes
// it. The pause of a group is in the rows of its channels too, where the guard of the insert sees it.

var (
	// ErrNoGroup means that a Put of a channel names a group that does not exist.
	ErrNoGroup = errors.New("durable: there is no such group")
	// ErrGroupFull means that a group has as many channels as its MaxChannels, or more.
	ErrGroupFull = errors.New("durable: the group has the maximum number of channels")
	// ErrHasChannels means that channels carry a group, which is therefore not deleted.
	ErrHasChannels = errors.New("durable: the group has channels")
)

// The reasons in the column paused of a channel.
const (
	pausedItself  = 1
	pausedByGroup = 2
)

// columns are those of the table channel_groups.
func (g *Group) columns() columns {
	return columns{
		{"no", &g.No},
		{"id", asBytes{&g.ID}},
		{"name", &g.Name},
		{"max_channels", &g.MaxChannels},
		{"paused", &g.Paused},
		{"settings", asBytes{&g.Settings}},
		{"changed_ms", asMillis{&g.ChangedAt}},
		{"version", &g.Version},
		{"deleted_no <> 0", &g.Deleted},
	}
}

// made are the columns of a new row, and changed those of one that a Put changes.
func (g *Group) made() columns {
	return g.columns().only("no", "id", "name", "max_channels", "settings", "changed_ms", "version")
}

func (g *Group) changed() columns {
	return g.columns().only("name", "max_channels", "settings", "changed_ms", "version")
}

var (
	fromGroups = `
SELECT` + new(Group).columns().names() + `
FROM channel_groups`

	selectPresentGroup = fromGroups + `
WHERE id = ?
  AND deleted_no = 0`

	selectGroupsSince = fromGroups + `
WHERE version > ?
ORDER BY no`

	insertGroup = new(Group).made().insert("channel_groups")

	updateGroup = `
UPDATE channel_groups
SET` + new(Group).changed().sets() + `
WHERE no = ?`
)

const (
	selectGroupMax = `
SELECT COALESCE(MAX(no), 0)
FROM channel_groups`

	updateGroupPaused = `
UPDATE channel_groups
SET
    paused = ?,
    version = ?
WHERE no = ?`

	deleteGroup = `
UPDATE channel_groups
SET
    deleted_no = no,
    version = ?
WHERE no = ?`

	countChannelsOfGroup = `
SELECT COUNT(*)
FROM channels
WHERE group_id = ?
  AND deleted_no = 0`

	// A channel that is paused itself stays so.
	pauseChannelsOfGroup = `
UPDATE channels
SET
    paused = (paused & 1) + ?,
    version = ?
WHERE group_id = ?
  AND deleted_no = 0`

	updateRhythmsOfGroup = `
UPDATE rhythms
SET since_ms = ?
WHERE channel_no IN (
    SELECT no
    FROM channels
    WHERE group_id = ?
      AND deleted_no = 0
)`

	updateMembership = `
UPDATE channels
SET
    group_id = ?,
    paused = ?
WHERE no = ?`
)

func (g *Group) common() common {
	return common{&g.No, &g.ID, &g.Name, new(string), &g.ChangedAt, &g.Version, new(Former)}
}

// PutGroup creates or updates a group. created is true for exactly one of several racing creators. A
// MaxChannels below the number of channels takes none away: the group gets no further ones.
func (s *Store) PutGroup(ctx context.Context, p Put) (out Group, created bool, err error) {
	if err := p.valid(); err != nil {
		return Group{}, false, err
	}
	err = s.put(ctx, "put group", func(ctx context.Context, c change) (err error) {
		out, created, err = putResource(ctx, c, p, resource[Group]{
			max: selectGroupMax, used: usedGroup,
			find:  func() (Group, error) { return selectOne[Group](ctx, c.tx, selectPresentGroup, []byte(p.ID)) },
			merge: func(out *Group, _ bool) error { return p.mergeGroup(out) },
			write: func(_, out *Group, created bool) error {
				if created {
					return exec(ctx, c.tx, insertGroup, out.made().fields()...)
				}
				return exec(ctx, c.tx, updateGroup, append(out.changed().fields(), out.No)...)
			},
		})
		return err
	})
	if err != nil {
		return Group{}, false, err
	}
	return out, created, nil
}

// mergeGroup sets what a Put says of a group alone.
func (p Put) mergeGroup(out *Group) (err error) {
	if p.Limits == nil {
		return nil
	}
	out.Settings, out.MaxChannels, err = p.Limits(out.Settings)
	if err == nil && len(out.Settings) > maxSettingsBytes {
		err = fmt.Errorf("%w: the settings of a group have at most %d bytes", ErrRejected, maxSettingsBytes)
	}
	return err
}

// join sets the group that a Put gives a channel. A channel that joins a group, also by its creation, has
// to find room in it; one that carries it already has its place.
func (c change) join(ctx context.Context, p Put, out *Channel) error {
	if p.Group == nil || *p.Group == out.Group {
		return nil
	}
	if p.Move != nil {
		if err := p.Move(); err != nil {
			return err
		}
	}
	out.Group, out.GroupPaused = *p.Group, false
	if out.Group == "" {
		return nil
	}
	g, err := selectOne[Group](ctx, c.tx, selectPresentGroup, []byte(out.Group))
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoGroup
	}
	if err != nil {
		return err
	}
	n, err := c.channelsOf(ctx, g.ID)
	if err == nil && g.MaxChannels > 0 && n >= g.MaxChannels {
		err = ErrGroupFull
	}
	out.GroupPaused = g.Paused
	return err
}

// joined stores the group of a channel that has another one than before.
func (c change) joined(ctx context.Context, old, out *Channel) error {
	if old.Group == out.Group {
		return nil
	}
	if old.GroupPaused != out.GroupPaused {
		if err := exec(ctx, c.tx, updateRhythm, c.nowMs, out.No); err != nil {
			return err
		}
	}
	return exec(ctx, c.tx, updateMembership, []byte(out.Group), out.pauses(), out.No)
}

// pauses is the column paused of a channel.
func (c *Channel) pauses() int {
	n := 0
	if c.Paused {
		n += pausedItself
	}
	if c.GroupPaused {
		n += pausedByGroup
	}
	return n
}

func (c change) channelsOf(ctx context.Context, group string) (n int, err error) {
	err = c.tx.QueryRowContext(ctx, countChannelsOfGroup, []byte(group)).Scan(&n)
	return n, err
}

// SetGroupPaused pauses or resumes the intake of all channels of a group, those that join it later
// included. After it has returned a paused group, no message is inserted into one of them. ErrNotFound:
// there is no such group.
func (s *Store) SetGroupPaused(ctx context.Context, id string, paused bool) (out Group, changed bool, err error) {
	err = s.put(ctx, "pause a group", func(ctx context.Context, c change) error {
		changed = false
		if out, err = selectOne[Group](ctx, c.tx, selectPresentGroup, []byte(id)); err != nil {
			return orNotFound(err)
		}
		if out.Paused == paused {
			return errUnchanged
		}
		was := out
		out.Paused, out.Version, changed = paused, c.version, true
		auditlog.Note(ctx, was, out)
		return c.pauseGroup(ctx, &out)
	})
	if err != nil {
		return Group{}, false, err
	}
	return out, changed, nil
}

// pauseGroup stores whether a group is paused, with its channels.
func (c change) pauseGroup(ctx context.Context, g *Group) error {
	if err := exec(ctx, c.tx, updateGroupPaused, g.Paused, c.version, g.No); err != nil {
		return err
	}
	reason := 0
	if g.Paused {
		reason = pausedByGroup
	}
	if err := exec(ctx, c.tx, updateRhythmsOfGroup, c.nowMs, []byte(g.ID)); err != nil {
		return err
	}
	return exec(ctx, c.tx, pauseChannelsOfGroup, reason, c.version, []byte(g.ID))
}

// DeleteGroup deletes a group that no channel carries, if the preconditions of p hold. ErrHasChannels:
// there are channels. ErrNotFound: there is no such group.
func (s *Store) DeleteGroup(ctx context.Context, p Put) (out Group, err error) {
	err = s.put(ctx, "delete a group", func(ctx context.Context, c change) error {
		if out, err = selectOne[Group](ctx, c.tx, selectPresentGroup, []byte(p.ID)); err != nil {
			return orNotFound(err)
		}
		if err := p.check(true, out.ChangedAt); err != nil {
			return err
		}
		switch n, err := c.channelsOf(ctx, p.ID); {
		case err != nil:
			return err
		case n > 0:
			return ErrHasChannels
		}
		auditlog.Note(ctx, out, nil)
		if err := s.endScopes(ctx, c, func(word string) bool { return word == "group:"+p.ID }); err != nil {
			return err
		}
		out.Deleted, out.Version = true, c.version
		return exec(ctx, c.tx, deleteGroup, c.version, out.No)
	})
	if err != nil {
		return Group{}, err
	}
	return out, nil
}
