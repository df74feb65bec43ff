#!/usr/bin/env bash
# Builds the last commit twice and compares every byte: scripts/reproducible.sh <version>
# The second build has another folder, an empty cache of Go, another time zone, language and umask.
# PARTS and PLATFORMS are those of dist.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/reproducible.sh <version>}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$(git rev-parse --git-common-dir)
for copy in first the-second/of-two; do
	mkdir -p "$work/$copy"
	git clone -q --shared --no-checkout "$source" "$work/$copy"
	git -C "$work/$copy" checkout -q --detach "$(git rev-parse HEAD)"
done
OUT=$work/a "$work/first/scripts/dist.sh" "$version"
(
	umask 077
	GOCACHE=$work/cache TZ=Pacific/Chatham LC_ALL=C.UTF-8 OUT=$work/b "$work/the-second/of-two/scripts/dist.sh" "$version"
)
if ! diff "$work/a/SHA256SUMS" "$work/b/SHA256SUMS"; then
	echo "two builds of one commit differ" >&2
	exit 1
fi
echo "the same bytes twice:"
cat "$work/a/SHA256SUMS"
