-- The store's clock, in one row: ms is its floor, ahead_ms is added to the server's clock, which went
-- back steps times. beat counts the raises of the floor, history names the history of the store.
-- As in 00002, the change may run again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS clock (
    no       TINYINT UNSIGNED NOT NULL,
    ms       BIGINT           NOT NULL,
    ahead_ms BIGINT           NOT NULL,
    steps    BIGINT           NOT NULL,
    beat     BIGINT           NOT NULL,
    history  BIGINT           NOT NULL,
    PRIMARY KEY (no)
) ENGINE = InnoDB;

INSERT INTO clock (no, ms, ahead_ms, steps, beat, history)
VALUES (0, 0, 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE no = no;
