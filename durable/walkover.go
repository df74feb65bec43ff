package durable

import (
	"context"

	"github.com/penstock-broker/penstock/ident"
)

var countHeads = statement{
	mysql: `
SELECT COUNT(*)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND audience > ?
LOCK IN SHARE MODE`,
	sqlite: `
SELECT COUNT(*)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND audience > ?`,
}

const countDelivered = `
SELECT COUNT(*)
FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?`

// AllDelivered reports whether every job that messages with after < ID <= through
// gave the consumer is delivered. It compares two counts and sends no rows, so
// where nothing is amiss a walk costs a tenth of reading it. Like Heads it waits
// for messages that are being inserted.
func (s *Store) AllDelivered(ctx context.Context, k Consumer, after, through ident.ID) (bool, error) {
	var owed, delivered int64
	err := repeat(ctx, "compare deliveries", func(ctx context.Context) error {
		if err := s.barrier(ctx); err != nil {
			return err
		}
		// The messages first: a delivery that is stored in between can only be one
		// of a message that is counted already.
		if err := s.reads.QueryRowContext(ctx, s.dialect.sql(countHeads), k.ChannelNo, after[:], through[:], k.Position).Scan(&owed); err != nil {
			return err
		}
		return s.reads.QueryRowContext(ctx, countDelivered, k.No, after[:], through[:]).Scan(&delivered)
	})
	return err == nil && owed == delivered, err
}
