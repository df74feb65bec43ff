-- What a consumer sets of its policy: a record of package policy, empty where it sets
-- nothing.
-- +goose Up
ALTER TABLE consumers ADD COLUMN policy BLOB NOT NULL DEFAULT x'';
