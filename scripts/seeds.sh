#!/usr/bin/env bash
# Runs the seeds of the simulation beside a command, and fails when one of the two does:
#
#   scripts/seeds.sh command [argument ...]
#
# bin/simulation.test is the test binary: one process runs the seeds, another one its other tests. Both
# have the lowest priority, each takes one processor, and what they print comes last. Their heaps are
# small: GOGC=400 saves a sixth of their CPU time.
set -uo pipefail
cd "$(dirname "$0")/.."

seeds() {
	cd internal/test/simulation &&
		printf '%s\n' '-test.run=TestSeeds$' '-test.skip=TestSeeds$' |
		GOGC=400 nice -n 19 xargs -P 2 -L 1 ../../../bin/simulation.test
}

log=$(mktemp)
set -m # the seeds get a process group, which the end of this script ends
seeds >"$log" 2>&1 &
job=$!
set +m
trap 'kill -- "-$job" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM
status=0
"$@" || status=$?
wait "$job" || status=1
cat "$log"
exit "$status"
