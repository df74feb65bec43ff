#!/usr/bin/env bash
# Plants each mistake of internal/test/mutants in a copy of the tree and expects its test to fail.
#
# A patch begins with a line that says what the mistake is, and a line "run: PACKAGE TEST", the regular expression for
# -run. First all of these tests have to pass without a mistake. Without servers. Arguments: names of patches; all.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
	if [ -f "$name" ]; then printf '%s\0' "$name"; fi
done | tar --null -T - -cf - | tar -xf - -C "$tree"
cd "$tree"
export PENSTOCK_TEST_SERVERS=none

patches=()
for name in "$@"; do patches+=("$here/internal/test/mutants/$name.patch"); done
if [ ${#patches[@]} -eq 0 ]; then patches=("$here"/internal/test/mutants/*.patch); fi

# tests runs the test of a patch. Its output is in $tree.out.
tests() {
	read -r _ package test < <(grep '^run: ' "$1")
	go test -count=1 -run "^${test}" "$package" >"$tree.out" 2>&1
}
trap 'rm -rf "$tree" "$tree.out"' EXIT

survived=0
for patch in "${patches[@]}"; do
	name=$(basename "$patch" .patch)
	if ! tests "$patch"; then
		echo "$name: its test fails without the mistake:"
		tail -n 20 "$tree.out"
		exit 1
	fi
	git apply "$patch"
	if tests "$patch"; then
		echo "$name: SURVIVED: $(head -n 1 "$patch")"
		survived=1
	elif grep -q -- '--- FAIL' "$tree.out"; then
		echo "$name: found by $(grep -m 1 -o -- '--- FAIL: [^ ]*' "$tree.out" | cut -d ' ' -f 3)"
	else
		echo "$name: its test did not run to a failure:"
		tail -n 20 "$tree.out"
		survived=1
	fi
	git apply -R "$patch"
done
exit $survived
