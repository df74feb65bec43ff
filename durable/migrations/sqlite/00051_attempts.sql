-- Before which time the failed attempts of jobs of a channel that are over were removed, Unix ms; 0: none
-- were. See durable/oldattempts.go.
-- +goose Up
ALTER TABLE kept_channels ADD COLUMN attempts_ms INTEGER NOT NULL DEFAULT 0;
