-- How fast adaptive consumers are delivered to, and the attempts of the present period. One
-- row for each consumer that was ever adaptive and had an attempt.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS paces (
    consumer_no INT UNSIGNED     NOT NULL,
    mode        TINYINT UNSIGNED NOT NULL,
    rate        INT UNSIGNED     NOT NULL,
    good        INT UNSIGNED     NOT NULL,
    strained    INT UNSIGNED     NOT NULL,
    since_ms    BIGINT           NOT NULL,
    PRIMARY KEY (consumer_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
