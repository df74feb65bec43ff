-- The books of consumers: sums of stretches of messages below the settled watermark, which do not
-- overlap. A stretch has the messages with after_id < ID <= through_id.
-- +goose Up
CREATE TABLE books (
    consumer_no INTEGER NOT NULL,
    after_id    BLOB    NOT NULL,
    through_id  BLOB    NOT NULL,
    accepted    INTEGER NOT NULL,
    filtered    INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, after_id)
) WITHOUT ROWID;
