-- What became of messages that were in the journal of a broker: the message in its path, or the
-- reason why there is none. A receipt begins with its time, and ends by its age.
-- +goose Up
CREATE TABLE receipts (
    id         BLOB    NOT NULL,
    channel_no INTEGER NOT NULL,
    message    BLOB    NOT NULL,
    reason     BLOB    NOT NULL,
    PRIMARY KEY (id)
) WITHOUT ROWID;
