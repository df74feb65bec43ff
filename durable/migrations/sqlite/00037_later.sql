-- A schedule may be asked for by a delay, which a repeat compares instead of the time, and may be
-- changed. delay_ms is the delay, 0 for a time. changed_ms is when it was changed last, 0 for never;
-- it grows with each change, so the insert of its message compares it. sent_before is the number of
-- the messages of recurrences that it had before: the IDs of its messages go on from there.
-- +goose Up
ALTER TABLE scheduled ADD COLUMN delay_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE scheduled ADD COLUMN changed_ms INTEGER NOT NULL DEFAULT 0;

ALTER TABLE scheduled ADD COLUMN sent_before INTEGER NOT NULL DEFAULT 0;
