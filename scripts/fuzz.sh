#!/usr/bin/env bash
# Runs each fuzz target of the module for a while: scripts/fuzz.sh [duration]
# (default 10s). Go fuzzes one target at a time, so the script does too.
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:-10s}
found=0
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		found=$((found + 1))
		printf '\n%s %s\n' "$package" "$target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package"
	done
done
printf '\n%d fuzz targets, %s each\n' "$found" "$duration"
