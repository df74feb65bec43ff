-- Leases that ended without a word are counted apart, for the jobs that are open and for dead letters,
-- which also have the count of their give-backs. What ended a job, an attempt or a kept lease has the
-- worker that had it: name;version, empty where it did not say who it is.
-- +goose Up
ALTER TABLE open_jobs ADD COLUMN leases_lost INTEGER NOT NULL DEFAULT 0;

ALTER TABLE dead_jobs ADD COLUMN leases_lost INTEGER NOT NULL DEFAULT 0;

ALTER TABLE dead_jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;

ALTER TABLE dead_jobs ADD COLUMN worker BLOB NOT NULL DEFAULT x'';

ALTER TABLE attempts ADD COLUMN worker BLOB NOT NULL DEFAULT x'';

ALTER TABLE deliveries ADD COLUMN worker BLOB;

ALTER TABLE kept_leases ADD COLUMN worker BLOB NOT NULL DEFAULT x'';
