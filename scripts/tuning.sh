#!/usr/bin/env bash
# What each knob costs and buys. The usual load runs before each run of
# a knob, ROUNDS times (3), on the same servers. A row is the median of the ratios of these pairs,
# which is what stays true on another machine, and while this one is slower for a while.
#
#   scripts/tuning.sh [knob ...]     default: all of them
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-3}
make --no-print-directory build >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The usual load: 64 producers, 1 KiB, one push consumer.
knobs=(
	"16 producers|--connections 16"
	"256 producers|--connections 256"
	"1024 producers|--connections 1024"
	"100 B|--payload 100"
	"10 KiB|--payload 10240"
	"100 KiB|--payload 102400"
	"two priorities|--priority 0:50,5:50"
	"message IDs|--message-ids"
	"ordering keys|--keys 64"
	"ordered|--keys 64 --policy ordered=true"
	"filter|--policy filter=priority==0"
	"rate limit|--policy rateLimit=100000/1s"
	"concurrency 1|--policy concurrency=1 --max-backlog 500"
	"concurrency 8|--policy concurrency=8 --max-backlog 500"
	"concurrency|--policy concurrency=64"
	"signatures|--policy signingSecret=generate"
	"responses|--policy responses=store"
	"ttl|--policy ttl=1h"
	"journal|--channel ack=journal"
	"5 consumers|--push-consumers 5"
	"32 slots|--broker-env BROKER_CONSUMER_CONCURRENCY=32"
	"256 slots|--broker-env BROKER_CONSUMER_CONCURRENCY=256"
	"debug log|--broker-env BROKER_LOG_LEVEL=debug"
	"no timer slack|--broker-env BROKER_TIMER_SLACK=0"
	"scraped each second|--scrape 1s"
	"scraped and traced|--scrape 1s --traced 0.01"
	"pull|--push-consumers 0 --pull-workers 16"
	"pull in batches|--push-consumers 0 --pull-workers 4 --pull-batch 100"
	"batches|--connections 2 --batch 100"
)

chosen() {
	[ $# -gt 1 ] || return 0
	local name=$1 one
	shift
	for one in "$@"; do [ "$one" != "$name" ] || return 0; done
	return 1
}

# measure runs one load and adds its report to a folder.
measure() {
	local folder=$1
	shift
	mkdir -p "$folder"
	bin/bench run --mysql "$PENSTOCK_BENCH_MYSQL" --redis "$PENSTOCK_TEST_REDIS" --connections 64 "$@" \
		--duration 4s --warmup 1s --json "$folder/$i.json" >"$work/log" 2>&1 ||
		{ status=$? && tail -20 "$work/log" >&2 && exit $status; }
}

for knob in "${knobs[@]}"; do
	name=${knob%%|*} flags=${knob#*|}
	chosen "$name" "$@" || continue
	of="$work/${name// /-}"
	for ((i = 1; i <= rounds; i++)); do
		measure "$of/usual"
		# shellcheck disable=SC2086 # the flags are words
		measure "$of/knob" $flags
	done
	echo
	echo "== $name (B) and the usual load (A)"
	bin/bench compare --pairs "$(echo "$of"/usual/*.json | tr ' ' ,)" "$(echo "$of"/knob/*.json | tr ' ' ,)" | grep -v '^caution: '
done
