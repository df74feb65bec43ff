-- How far a failed attempt came. Policies may be longer now; SQLite has no widths.
-- A producer may sign what it publishes.
-- +goose Up
ALTER TABLE attempts ADD COLUMN phase INTEGER NOT NULL DEFAULT 0;
ALTER TABLE producers ADD COLUMN publish_secret BLOB NOT NULL DEFAULT x'';
