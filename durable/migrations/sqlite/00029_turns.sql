-- Schedules that are due are sent in turns of producers and channels. The index that finds those of a
-- producer is replaced by one that finds those of each of its channels, too.
-- +goose Up
CREATE INDEX scheduled_turns ON scheduled (status, producer_no, channel_no, due_ms, id);

DROP INDEX scheduled_producer;
