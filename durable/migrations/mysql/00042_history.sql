-- The history: what brokers counted in slots of 10 seconds, a minute and ten minutes (step, in seconds),
-- of the whole (scope 0), of a channel (1) and of a consumer (2) with its number. A row is what one
-- broker counted since it started, in one slot, so it may be written again; a reader adds the rows of all
-- writers. acks and deliveries are encoded histograms. See durable/historyrow.go.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS history (
    scope      TINYINT UNSIGNED  NOT NULL,
    no         INT UNSIGNED      NOT NULL,
    step       SMALLINT UNSIGNED NOT NULL,
    at_ms      BIGINT            NOT NULL,
    writer     INT UNSIGNED      NOT NULL,
    accepted   BIGINT            NOT NULL,
    delivered  BIGINT            NOT NULL,
    failed     BIGINT            NOT NULL,
    dead       BIGINT            NOT NULL,
    oldest_ms  BIGINT            NOT NULL,
    acks       VARBINARY(1024)   NOT NULL,
    deliveries VARBINARY(1024)   NOT NULL,
    PRIMARY KEY (scope, no, step, at_ms, writer),
    KEY history_at (step, at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- What happened: the start of a broker (kind 1), the first broker of a version (2), the change of a policy
-- (3) of a channel, or of a consumer. no is random, for two marks of one millisecond.
CREATE TABLE IF NOT EXISTS history_marks (
    at_ms       BIGINT           NOT NULL,
    no          INT UNSIGNED     NOT NULL,
    kind        TINYINT UNSIGNED NOT NULL,
    channel_no  INT UNSIGNED     NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    note        VARBINARY(1024)  NOT NULL,
    PRIMARY KEY (at_ms, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
