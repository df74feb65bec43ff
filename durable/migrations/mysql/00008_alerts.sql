-- Alerts on their way: a row for each alert and place that it still has to reach. Consumers
-- whose dead letters grow, and for which that was alerted.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS alerts (
    sink        TINYINT UNSIGNED NOT NULL,
    at_ms       BIGINT           NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    event       TINYINT UNSIGNED NOT NULL,
    channel_id  VARBINARY(255)   NOT NULL,
    consumer_id VARBINARY(255)   NOT NULL,
    reason      VARBINARY(512)   NOT NULL,
    tries       INT UNSIGNED     NOT NULL,
    next_ms     BIGINT           NOT NULL,
    PRIMARY KEY (sink, at_ms, consumer_no, event)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS dlq_growth (
    consumer_no INT UNSIGNED NOT NULL,
    since_ms    BIGINT       NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
