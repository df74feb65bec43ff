-- What became of messages that were in the journal of a broker: the message in its path, or the
-- reason why there is none. A receipt begins with its time, and ends by its age.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS receipts (
    id         BINARY(20)     NOT NULL,
    channel_no INT UNSIGNED   NOT NULL,
    message    VARBINARY(255) NOT NULL,
    reason     VARBINARY(100) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
