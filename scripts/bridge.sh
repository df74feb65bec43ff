#!/usr/bin/env bash
# The bridge between the smallest program that takes a message the way (bench/floor) and the broker:
# the floor, the floor with one stage of the broker, the floor with more and more of them, the broker. All
# in turn, ROUNDS times (5), on the same servers, with each number of CONNECTIONS (64 256 1024).
# The ratios are medians of the turns. Nothing in a floor makes producers wait for deliveries, so the
# load generator does, beyond 20 000 of them.
#
#   scripts/bridge.sh [flag of bench run ...]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5}
make --no-print-directory build >&2
CGO_ENABLED=0 go build -o bin/floor ./bench/floor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

steps=(
	"floor|"
	"process only|process"
	"accept only|accept"
	"insert only|insert"
	"queue only|queue"
	"post only|post"
	"outcome only|outcome"
	"accept and insert|process,accept,insert"
	"... and queue|process,accept,insert,queue"
	"... and post|process,accept,insert,queue,post"
	"all stages|process,accept,insert,queue,post,outcome"
	"broker|"
	"broker, priorities||--priority 5:100"
	"broker, message IDs||--message-ids"
)

for connections in ${CONNECTIONS:-64 256 1024}; do
	args=()
	for ((i = 1; i <= rounds; i++)); do
		for step in "${steps[@]}"; do
			IFS='|' read -r name with flags <<<"$step"
			binary=bin/floor mysql=$PENSTOCK_BENCH_MYSQL_OTHER
			[[ $name != broker* ]] || binary=bin/broker mysql=$PENSTOCK_BENCH_MYSQL
			# shellcheck disable=SC2086 # the flags are words
			bin/bench run --broker-binary "$binary" --broker-env "FLOOR_WITH=$with" --mysql "$mysql" --redis "$PENSTOCK_TEST_REDIS" \
				--connections "$connections" --max-backlog 20000 --push-consumers 1 --duration "${EACH:-5s}" --warmup 1s --json "$work/${name//[ ,]/-}-$i.json" $flags "$@" >"$work/log" 2>&1 ||
				{ status=$? && echo "$name:" >&2 && grep -v "lost: message" "$work/log" | tail -20 >&2 && exit $status; }
		done
	done
	for step in "${steps[@]}"; do
		name=${step%%|*}
		files=$(for ((i = 1; i <= rounds; i++)); do echo "$work/${name//[ ,]/-}-$i.json"; done | paste -sd,)
		args+=("$name=$files")
	done
	printf '\n== %s connections, %s turns of %s\n' "$connections" "$rounds" "${EACH:-5s}"
	bin/bench steps "${args[@]}"
	rm -f "$work"/*.json
done
