-- States that were alerted and have not ended: the event, and the consumer or, of channel.silent, the
-- channel. dlq_growth moves into it. See durable/alarm.go.
--
-- A channel with expectEvery has a row in rhythms: from when on silence counts at the earliest, because it
-- is the time of a message, of the setting, or of the end of a pause. See durable/rhythm.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS open_alarms (
    event      TINYINT UNSIGNED NOT NULL,
    subject_no INT UNSIGNED     NOT NULL,
    since_ms   BIGINT           NOT NULL,
    PRIMARY KEY (event, subject_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT IGNORE INTO open_alarms (event, subject_no, since_ms)
SELECT 5, consumer_no, since_ms
FROM dlq_growth;

CREATE TABLE IF NOT EXISTS rhythms (
    channel_no INT UNSIGNED NOT NULL,
    since_ms   BIGINT       NOT NULL,
    PRIMARY KEY (channel_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
