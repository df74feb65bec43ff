#!/usr/bin/env bash
# Compares this tree with another commit: both brokers in turn, TURNS times (5), for each kind of
# traffic, on the same servers, driven by this tree's harness. Only a difference beyond the noise of
# the repeats counts.
#
#   scripts/bench-compare.sh [commit [kind ...]]     kinds: publish push pull batch
#
# With LEAST=0.95 it fails if this tree has less than that part of the other one's rates, in the median
# of the pairs of turns.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=${1:-HEAD}
shift || true
kinds=("$@")
[ ${#kinds[@]} -gt 0 ] || kinds=(publish push pull batch)
turns=${TURNS:-5}
make --no-print-directory build >&2
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
git worktree add --detach "$work/tree" "$ref" >&2
(cd "$work/tree" && CGO_ENABLED=0 go build -o "$work/old" ./cmd/broker)

# traffic prints the flags of one kind.
traffic() {
	case $1 in
	publish) echo --connections "${CONNECTIONS:-64}" --push-consumers 0 ;;
	push) echo --connections "${CONNECTIONS:-64}" --push-consumers "${CONSUMERS:-1}" ;;
	pull) echo --connections 16 --push-consumers 0 --pull-workers 16 ;;
	batch) echo --connections 2 --push-consumers 0 --batch 100 --pull-workers 4 --pull-batch 100 ;;
	*) echo "no such kind of traffic: $1" >&2 && return 1 ;;
	esac
}

slow=0
echo "A = $ref, B = this tree"
for kind in "${kinds[@]}"; do
	flags=$(traffic "$kind")
	old='' new=''
	for ((i = 1; i <= turns; i++)); do
		for side in old new; do
			binary=bin/broker mysql=$PENSTOCK_BENCH_MYSQL redis=$PENSTOCK_TEST_REDIS
			# Stores of their own: the tables of this tree may be newer than the other broker, and a
			# broker that meets the Redis of another store scans all of its own.
			[ "$side" = new ] || binary="$work/old" mysql=$PENSTOCK_BENCH_MYSQL_OTHER redis=${redis%/0}/1
			# shellcheck disable=SC2086 # the flags are words
			bin/bench run --broker-binary "$binary" --mysql "$mysql" --redis "$redis" \
				$flags --duration 5s --warmup 1s --json "$work/$kind-$side-$i.json" >"$work/log" 2>&1 ||
				{ status=$? && cat "$work/log" >&2 && exit $status; }
		done
		old="$old,$work/$kind-old-$i.json"
		new="$new,$work/$kind-new-$i.json"
	done
	printf '\n== %s (%s)\n' "$kind" "$flags"
	bin/bench compare --least "${LEAST:-0}" "${old#,}" "${new#,}" || slow=$?
done
exit "$slow"
