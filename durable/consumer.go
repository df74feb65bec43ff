package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// columns are those of the table consumers that the copies of the catalogue have.
func (k *Consumer) columns() columns {
	return columns{
		{"no", &k.No},
		{"channel_no", &k.ChannelNo},
		{"position", &k.Position},
		{"id", asBytes{&k.ID}},
		{"name", &k.Name},
		{"token", asBytes{&k.Token}},
		{"callback_url", asBytes{&k.CallbackURL}},
		{"type", &k.Type},
		{"protocol", asBytes{&k.Protocol}},
		{"policy", asBytes{&k.Policy}},
		{"changed_ms", asMillis{&k.ChangedAt}},
		{"version", &k.Version},
		{"state", &k.State},
		{"state_reason", asBytes{&k.StateReason}},
		{"state_ms", &k.StateMs},
		{"until_id", asOptionalID{&k.Until}},
		{"since_id", asOptionalID{&k.Since}},
		{"since_policy", asBytes{&k.SincePolicy}},
		{"former_token", asBytes{&k.FormerToken}},
		{"former_until_ms", &k.FormerUntilMs},
	}
}

// made are the columns of a new row, and changed those of one that a Put changes.
func (k *Consumer) made() columns {
	return k.columns().only("no", "channel_no", "position", "id", "name", "token", "callback_url", "type",
		"protocol", "policy", "changed_ms", "version", "state_ms", "since_id", "since_policy")
}

func (k *Consumer) changed() columns {
	return k.columns().only("name", "token", "callback_url", "type", "protocol", "policy", "changed_ms", "version",
		"former_token", "former_until_ms")
}

var (
	fromConsumers = `
SELECT` + new(Consumer).columns().names() + `
FROM consumers`

	selectConsumer = fromConsumers + `
WHERE channel_no = ?
  AND id = ?
  AND deleted_no = 0`

	selectConsumerByNo = fromConsumers + `
WHERE no = ?`

	selectConsumersSince = fromConsumers + `
WHERE version > ?
ORDER BY no`

	insertConsumer = new(Consumer).made().insert("consumers")

	updateConsumer = `
UPDATE consumers
SET` + new(Consumer).changed().sets() + `
WHERE no = ?`
)

// The numbers of replays are of the same sequence.
const selectConsumerMax = `
SELECT COALESCE(MAX(no), 0)
FROM (
    SELECT MAX(no) AS no
    FROM consumers
    UNION ALL
    SELECT MAX(no)
    FROM replays
) numbers`

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
		ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(p.ChannelID))
		if err != nil {
			return orNotFound(err)
		}
		out, created, err = putResource(ctx, c, p.Put, resource[Consumer]{
			max: selectConsumerMax, used: usedConsumer,
			find: func() (Consumer, error) {
				old, err := selectOne[Consumer](ctx, c.tx, selectConsumer, ch.No, []byte(p.ID))
				if errors.Is(err, sql.ErrNoRows) {
					old = Consumer{ChannelNo: ch.No, Position: ch.Audience}
				}
				return old, err
			},
			merge: func(out *Consumer, created bool) error {
				if created && ch.Audience >= ident.MaxPositions {
					return ErrFull
				}
				if err := p.mergeCall(out); err != nil {
					return err
				}
				return p.attach(out, created)
			},
			write: func(old, out *Consumer, created bool) error {
				if created {
					return c.insert(ctx, ch, out)
				}
				return s.updateConsumer(ctx, c, old, out)
			},
		})
		return err
	})
	if err != nil {
		return Consumer{}, false, err
	}
	return out, created, nil
}

func (k *Consumer) common() common {
	return common{&k.No, &k.ID, &k.Name, &k.Token, &k.ChangedAt, &k.Version, &k.Former}
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
func (c change) insert(ctx context.Context, ch Channel, k *Consumer) error {
	if err := exec(ctx, c.tx, growAudience, ch.Audience+1, c.version, ch.No); err != nil {
		return err
	}
	k.StateMs = k.ChangedAt.UnixMilli()
	return exec(ctx, c.tx, insertConsumer, seal(ctx, k).made().fields()...)
}

// updateConsumer writes a consumer that exists.
func (s *Store) updateConsumer(ctx context.Context, c change, old, k *Consumer) error {
	if k.Policy != old.Policy { // the filter is in it
		if err := exec(ctx, c.tx, growShape, c.version, k.ChannelNo); err != nil {
			return err
		}
	}
	err := exec(ctx, c.tx, updateConsumer, append(seal(ctx, k).changed().fields(), k.No)...)
	if err == nil && !sameCall(old, k) {
		err = exec(ctx, c.tx, deleteHold, k.No)
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

// mergeCall sets what a Put says of a consumer alone.
func (p ConsumerPut) mergeCall(k *Consumer) (err error) {
	if p.CallbackURL != nil {
		k.CallbackURL = *p.CallbackURL
	}
	if p.Type != nil {
		k.Type = *p.Type
	}
	if p.Protocol != nil {
		k.Protocol = *p.Protocol
	}
	if p.Policy != nil {
		if k.Policy, err = p.Policy(k.Policy); err != nil {
			return err
		}
	}
	if len(k.Policy) > maxPolicyBytes {
		return fmt.Errorf("%w: a policy has at most %d bytes", ErrRejected, maxPolicyBytes)
	}
	return nil
}
