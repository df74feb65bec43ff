-- A consumer may be attached as of a time: it then also has a job of each message after since_id
-- that was stored before the consumer was created. The filter of since_policy, its policy at that
-- time, is for these messages.
-- +goose Up
ALTER TABLE consumers ADD COLUMN since_id BLOB;
ALTER TABLE consumers ADD COLUMN since_policy BLOB NOT NULL DEFAULT x'';
