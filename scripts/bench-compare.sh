#!/usr/bin/env bash
# Compares this tree with another commit: both brokers in turn, five times, on
# the same servers, driven by this tree's harness. Only a difference beyond the
# noise of the repeats counts.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=${1:-HEAD}
make --no-print-directory build >&2
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
git worktree add --detach "$work/tree" "$ref" >&2
(cd "$work/tree" && CGO_ENABLED=0 go build -o "$work/old" ./cmd/broker)
old='' new=''
for i in 1 2 3 4 5; do
	for side in old new; do
		binary=bin/broker
		[ "$side" = new ] || binary="$work/old"
		bin/bench run --broker-binary "$binary" --mysql "$PENSTOCK_BENCH_MYSQL" --redis "$PENSTOCK_TEST_REDIS" \
			--connections "${CONNECTIONS:-64}" --push-consumers "${CONSUMERS:-1}" --duration 6s --warmup 2s --json "$work/$side-$i.json" >/dev/null 2>&1
	done
	old="$old,$work/old-$i.json"
	new="$new,$work/new-$i.json"
done
echo "A = $ref, B = this tree"
bin/bench compare "${old#,}" "${new#,}"
