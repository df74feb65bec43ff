#!/usr/bin/env bash
# Fits what a request, a message, a push job and a KiB cost in each process, from six kinds of load, and predicts
# the rates of six others from that: scripts/scale.sh [flag of bench run ...]. ROUNDS (3) times, all in turn, on the
# same servers. It fails where a prediction differs by more than WITHIN (0.2). RATE (1000000) is the rate whose
# cores are told. It needs 20 GB of disk.
set -euo pipefail
cd "$(dirname "$0")/.."
make --no-print-directory build >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name|consumers|batch|bytes|connections; what fits the model comes first
loads=(
	"fit|no consumer|0|1|1024|256"
	"fit|batches of 100|0|100|1024|16"
	"fit|1 consumer|1|1|1024|256"
	"fit|4 consumers|4|1|1024|256"
	"fit|4 KiB|0|1|4096|256"
	"fit|4 KiB, 1 consumer|1|1|4096|256"
	"check|2 consumers|2|1|1024|256"
	"check|8 consumers|8|1|1024|256"
	"check|2 KiB|0|1|2048|256"
	"check|2 KiB, 2 consumers|2|1|2048|256"
	"check|batches of 10|0|10|1024|64"
	"check|batches of 10, 1 consumer|1|10|1024|64"
)
for ((i = 1; i <= ${ROUNDS:-3}; i++)); do
	for load in "${loads[@]}"; do
		IFS='|' read -r _ name consumers batch bytes connections <<<"$load"
		bin/bench run --mysql "$PENSTOCK_BENCH_MYSQL" --redis "$PENSTOCK_TEST_REDIS" --duration "${EACH:-6s}" --warmup 2s \
			--max-backlog 5000 --push-consumers "$consumers" --batch "$batch" --payload "$bytes" --connections "$connections" \
			--json "$work/${name//[ ,]/-}.$i.json" "$@" >"$work/log" 2>&1 ||
			{ status=$? && echo "$name:" >&2 && tail -20 "$work/log" >&2 && exit $status; }
	done
done
args=()
for load in "${loads[@]}"; do
	IFS='|' read -r kind name _ <<<"$load"
	files=$(printf '%s\n' "$work/${name//[ ,]/-}".*.json | paste -sd,)
	[ "$kind" = fit ] && args+=("$name=$files") || args=(--check "$name=$files" "${args[@]}")
done
bin/bench model --within "${WITHIN:-0.2}" --rate "${RATE:-1000000}" --batch 100 "${args[@]}"
