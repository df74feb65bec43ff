#!/usr/bin/env bash
# Looks at the deb and rpm files of a folder: scripts/lint-packages.sh <folder>
# A program that is missing is installed with apt, or named.
set -euo pipefail
cd "${1:?usage: scripts/lint-packages.sh <folder>}"
say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
missing=()
for program in lintian rpm; do have "$program" || missing+=("$program"); done
if [ ${#missing[@]} -gt 0 ] && have apt-get; then
	install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2; }
	install || { as_root apt-get update -q >&2 && install; }
fi
for program in lintian rpm; do have "$program" || { say "$program is not installed"; exit 1; }; done

# Nothing that the overrides do not name with a reason.
lintian --allow-root --fail-on error,warning ./*.deb
for package in ./*.rpm; do
	files=$(rpm -qlvp "$package")
	for wanted in '^-rwxr-xr-x .* /usr/bin/broker$' '^-rw------- .* /etc/penstock/penstock.env$' \
		'^-rw-r--r-- .* /usr/lib/systemd/system/penstock.service$' '/LICENSE$' '/THIRD-PARTY-LICENSES.gz$'; do
		grep -q -- "$wanted" <<<"$files" || { say "$package has no file like $wanted:"; say "$files"; exit 1; }
	done
	[ "$(rpm -qcp "$package")" = /etc/penstock/penstock.env ] || { say "$package: the settings are not a configuration file"; exit 1; }
done
say "the packages are fine"
