-- States that were alerted and have not ended: the event, and the consumer or, of channel.silent, the
-- channel. dlq_growth moves into it. See durable/alarm.go.
--
-- A channel with expectEvery has a row in rhythms: from when on silence counts at the earliest, because it
-- is the time of a message, of the setting, or of the end of a pause. See durable/rhythm.go.
-- +goose Up
CREATE TABLE IF NOT EXISTS open_alarms (
    event      INTEGER NOT NULL,
    subject_no INTEGER NOT NULL,
    since_ms   INTEGER NOT NULL,
    PRIMARY KEY (event, subject_no)
) WITHOUT ROWID;

INSERT INTO open_alarms (event, subject_no, since_ms)
SELECT 5, consumer_no, since_ms
FROM dlq_growth
WHERE true
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS rhythms (
    channel_no INTEGER NOT NULL,
    since_ms   INTEGER NOT NULL,
    PRIMARY KEY (channel_no)
) WITHOUT ROWID;
