package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	consumerColumns = `
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state,
    state_reason,
    state_ms,
    until_id,
    since_id,
    since_policy
FROM consumers`

	selectConsumer = `
SELECT` + consumerColumns + `
WHERE channel_no = ?
  AND id = ?
  AND deleted_no = 0`

	selectConsumersSince = `
SELECT` + consumerColumns + `
WHERE version > ?
ORDER BY no`

	// The numbers of replays are of the same sequence.
	selectConsumerMax = `
SELECT COALESCE(MAX(no), 0)
FROM (
    SELECT MAX(no) AS no
    FROM consumers
    UNION ALL
    SELECT MAX(no)
    FROM replays
) numbers`

	insertConsumer = `
INSERT INTO consumers (
    no,
    channel_no,
    position,
    id,
    name,
    token,
    callback_url,
    type,
    protocol,
    policy,
    changed_ms,
    version,
    state_ms,
    since_id,
    since_policy
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	updateConsumer = `
UPDATE consumers
SET
    name = ?,
    token = ?,
    callback_url = ?,
    type = ?,
    protocol = ?,
    policy = ?,
    changed_ms = ?,
    version = ?
WHERE no = ?`
)

// PutConsumer creates or updates a consumer of an existing channel. After it has returned a
// created consumer, the audience of every message inserted later includes that consumer. After it
// has returned a changed policy, messages are inserted only from brokers that know it.
// ErrNotFound: the channel does not exist. ErrFull: no position is left. ErrSince: the consumer
// exists, with another Since.
func (s *Store) PutConsumer(ctx context.Context, p ConsumerPut) (out Consumer, created bool, err error) {
	if err := p.valid(); err != nil {
		return Consumer{}, false, err
	}
	err = s.put(ctx, "put consumer", func(ctx context.Context, c change) error {
		ch, err := scanChannel(c.tx.QueryRowContext(ctx, selectChannel, []byte(p.ChannelID)))
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		old, err := scanConsumer(c.tx.QueryRowContext(ctx, selectConsumer, ch.No, []byte(p.ID)))
		created = errors.Is(err, sql.ErrNoRows)
		if err != nil && !created {
			return err
		}
		if err := p.check(!created, old.ChangedAt); err != nil {
			return err
		}
		if created {
			if ch.Audience >= ident.MaxPositions {
				return ErrFull
			}
			old = Consumer{ChannelNo: ch.No, Position: ch.Audience, ID: p.ID, Name: p.ID, Token: p.NewToken}
			if old.No, err = c.next(ctx, selectConsumerMax, usedConsumer); err != nil {
				return err
			}
		}
		if out, err = p.merge(old); err != nil {
			return err
		}
		if err := p.attach(&out, created); err != nil {
			return err
		}
		if out == old && !created {
			return errUnchanged
		}
		ms := c.stamp(p.Put, !created, old.ChangedAt)
		out.ChangedAt, out.Version = fromMillis(ms), c.version
		if !created {
			return s.updateConsumer(ctx, c, old, &out, ms)
		}
		out.StateMs = ms
		return c.insert(ctx, ch, out, ms)
	})
	if err != nil {
		return Consumer{}, false, err
	}
	return out, created, nil
}

// attach checks that the consumer can be, and sets since when it begins.
func (p ConsumerPut) attach(k *Consumer, created bool) error {
	switch {
	case k.Type == Push && k.CallbackURL == "":
		return ErrConsumerInvalid
	case p.Since == nil:
	case created:
		k.Since, k.SincePolicy = *p.Since, k.Policy
	case *p.Since != k.Since:
		return ErrSince
	}
	return nil
}

// insert writes a new consumer of a channel.
func (c change) insert(ctx context.Context, ch Channel, k Consumer, ms int64) error {
	if _, err := c.tx.ExecContext(ctx, growAudience, ch.Audience+1, c.version, ch.No); err != nil {
		return err
	}
	_, err := c.tx.ExecContext(ctx, insertConsumer,
		k.No, k.ChannelNo, k.Position, []byte(k.ID), k.Name, []byte(k.Token),
		[]byte(k.CallbackURL), k.Type, []byte(k.Protocol), []byte(k.Policy), ms, c.version, ms, sinceColumn(k.Since), []byte(k.SincePolicy))
	return err
}

// updateConsumer writes a consumer that exists.
func (s *Store) updateConsumer(ctx context.Context, c change, old Consumer, k *Consumer, ms int64) error {
	if k.Policy != old.Policy { // the filter is in it
		if _, err := c.tx.ExecContext(ctx, growShape, c.version, k.ChannelNo); err != nil {
			return err
		}
	}
	_, err := c.tx.ExecContext(ctx, updateConsumer,
		k.Name, []byte(k.Token), []byte(k.CallbackURL), k.Type, []byte(k.Protocol), []byte(k.Policy), ms, c.version, k.No)
	if err == nil && !sameCall(&old, k) {
		_, err = c.tx.ExecContext(ctx, deleteHold, k.No)
	}
	if err != nil || k.CallbackURL == old.CallbackURL && k.Type == old.Type {
		return err
	}
	return s.moved(ctx, c, k)
}

// maxPolicyBytes is the width of the column.
const maxPolicyBytes = 16384

func (p ConsumerPut) valid() error {
	switch {
	case p.CallbackURL != nil && len(*p.CallbackURL) > 4096:
		return fmt.Errorf("%w: a callback URL has at most 4096 bytes", ErrRejected)
	case p.Protocol != nil && len(*p.Protocol) > 16:
		return fmt.Errorf("%w: unknown protocol", ErrRejected)
	case p.Type != nil && *p.Type > Pull:
		return fmt.Errorf("%w: unknown consumer type", ErrRejected)
	}
	return p.Put.valid()
}

func (p ConsumerPut) merge(c Consumer) (Consumer, error) {
	c.Name, c.Token = p.Put.merge(c.Name, c.Token)
	if p.CallbackURL != nil {
		c.CallbackURL = *p.CallbackURL
	}
	if p.Type != nil {
		c.Type = *p.Type
	}
	if p.Protocol != nil {
		c.Protocol = *p.Protocol
	}
	if p.Policy != nil {
		var err error
		if c.Policy, err = p.Policy(c.Policy); err != nil {
			return c, err
		}
	}
	if len(c.Policy) > maxPolicyBytes {
		return c, fmt.Errorf("%w: a policy has at most %d bytes", ErrRejected, maxPolicyBytes)
	}
	return c, nil
}

// sinceColumn returns the value of the column: NULL for the zero ID.
func sinceColumn(id ident.ID) any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

func consumersSince(ctx context.Context, q querier, version int64) ([]Consumer, error) {
	var out []Consumer
	err := each(ctx, q, selectConsumersSince, []any{version}, func(r *sql.Rows) error {
		c, err := scanConsumer(r)
		out = append(out, c)
		return err
	})
	return out, err
}

func scanConsumer(r scanner) (Consumer, error) {
	var c Consumer
	var ms int64
	var until, since, record []byte
	err := r.Scan(&c.No, &c.ChannelNo, &c.Position, &c.ID, &c.Name, &c.Token, &c.CallbackURL, &c.Type, &c.Protocol, &c.Policy, &ms, &c.Version,
		&c.State, &c.StateReason, &c.StateMs, &until, &since, &record)
	copy(c.Until[:], until)
	copy(c.Since[:], since)
	c.SincePolicy = string(record)
	c.ChangedAt = fromMillis(ms)
	return c, err
}
