package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const selectHeaders = `
SELECT
    id,
    headers
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

// Tasks returns the tasks of the existing messages among ids, "" for those without one.
func (s *Store) Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error) {
	out := make(map[ident.ID]string, len(ids))
	for _, part := range chunks(ids, maxInList) {
		err := repeat(ctx, "read tasks", func(ctx context.Context) error {
			return each(ctx, s.reads, list(selectHeaders, len(part)), inArgs(channelNo, part), func(r *sql.Rows) error {
				var m Message
				err := r.Scan(asID{&m.ID}, &m.Headers)
				out[m.ID] = m.Task()
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// HeadersOf returns the headers of a message, without its payload; nil where the channel has no such message.
func (s *Store) HeadersOf(ctx context.Context, channelNo uint32, id ident.ID) (headers []byte, err error) {
	err = repeat(ctx, "read headers", func(ctx context.Context) error {
		return each(ctx, s.reads, list(selectHeaders, 1), inArgs(channelNo, []ident.ID{id}), func(r *sql.Rows) error {
			return r.Scan(asID{&id}, &headers)
		})
	})
	return headers, err
}
