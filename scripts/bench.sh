#!/usr/bin/env bash
# The short measurement behind `make bench`: each kind of traffic for a few
# seconds, with the ceilings of this machine measured in between. The ledger
# checks every message. Arguments go to each run (e.g. --duration 30s).
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory build >&2
stores=(--mysql "$PENSTOCK_BENCH_MYSQL" --redis "$PENSTOCK_TEST_REDIS")

run() {
	printf '\n== %s\n' "$1"
	shift
	bin/bench run "${stores[@]}" --duration 8s --warmup 2s --with-limits "$@" 2>/dev/null
}

run "publish, no consumer, 64 connections" --push-consumers 0 --connections 64 "$@"
run "publish, no consumer, 256 connections" --push-consumers 0 --connections 256 "$@"
run "publish to 1 push consumer, 64 connections" --push-consumers 1 --connections 64 "$@"
run "publish to 1 push consumer, 256 connections" --push-consumers 1 --connections 256 "$@"
run "batch publish, 100 lines, 8 connections" --push-consumers 0 --connections 8 --batch 100 "$@"
run "batch publish to 4 batch pull workers" --push-consumers 0 --pull-workers 4 --pull-batch 100 --connections 2 --batch 100 "$@"
