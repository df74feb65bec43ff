-- When a worker of a pull consumer last claimed, so a wiped Redis and a restart do not forget it.
-- +goose Up
ALTER TABLE consumer_facts ADD COLUMN claim_ms INTEGER NOT NULL DEFAULT 0;
