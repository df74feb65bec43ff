-- awaiting_replies has a row for each response that waits because its producer has no reply URL: the
-- deletion of the producer, and a URL, find what waits for it. schedules are found by their producer.
-- +goose Up
CREATE TABLE awaiting_replies (
    consumer_no INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    producer_no INTEGER NOT NULL,
    PRIMARY KEY (consumer_no, message_id)
) WITHOUT ROWID;

CREATE INDEX awaiting_replies_producer ON awaiting_replies (producer_no, consumer_no, message_id);

CREATE INDEX scheduled_producer ON scheduled (producer_no, status);
