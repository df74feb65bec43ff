-- Replays of consumers. no is from the sequence of consumers.no, so outcome tables take it as a
-- consumer. The messages are those with after_id < ID <= through_id; up to settled_id each job has
-- an outcome or a row in open_jobs, and jobs, bytes count them. matched is what was counted at the
-- begin. delivered and dead are written at the end.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS replays (
    no          INT UNSIGNED     NOT NULL PRIMARY KEY,
    channel_no  INT UNSIGNED     NOT NULL,
    consumer_no INT UNSIGNED     NOT NULL,
    after_id    BINARY(12)       NOT NULL,
    through_id  BINARY(12)       NOT NULL,
    selected    TINYINT UNSIGNED NOT NULL,
    filter      VARBINARY(4096)  NOT NULL,
    rate        VARBINARY(64)    NOT NULL,
    state       TINYINT UNSIGNED NOT NULL,
    created_ms  BIGINT           NOT NULL,
    state_ms    BIGINT           NOT NULL,
    removed_ms  BIGINT           NOT NULL,
    matched     BIGINT           NOT NULL,
    bytes       BIGINT           NOT NULL,
    estimated   TINYINT UNSIGNED NOT NULL,
    settled_id  BINARY(12)       NOT NULL,
    jobs        BIGINT           NOT NULL,
    job_bytes   BIGINT           NOT NULL,
    delivered   BIGINT           NOT NULL,
    dead        BIGINT           NOT NULL,
    version     BIGINT           NOT NULL,
    KEY replays_consumer (channel_no, consumer_no, no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
