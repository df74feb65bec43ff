-- How often pull workers gave a job back since it was stored or redriven, without an attempt. The
-- attempts have a row for each time.
-- +goose Up
ALTER TABLE open_jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
