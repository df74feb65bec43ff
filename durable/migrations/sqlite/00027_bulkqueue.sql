-- Bulks are claimed a producer at a time, so that one with many of them holds back no other. The index
-- has the bulks of a producer that have the same kind of work together, the longest due first.
-- +goose Up
CREATE INDEX bulks_work ON bulks (state, paused, producer_no, next_ms, id);
