#!/usr/bin/env bash
# Looks at the deb and rpm files of a folder, and runs the commands of docs/operate/packages.md with a folder in
# place of the machine: scripts/lint-packages.sh <folder>
# A program that is missing is installed with apt, or named.
set -euo pipefail
page=$(cd "$(dirname "$0")/.." && pwd)/docs/operate/packages.md
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

commands=$(awk '/^```sh$/ {on = 1; next} /^```$/ {on = 0} on' "$page")
machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
for package in ./*.deb; do
	name=$(basename "$package" .deb)
	mkdir "$machine/$name"
	MACHINE=$machine/$name bash -euo pipefail -c '
		sudo() { "$@"; }
		dpkg() { [ "$1" = -i ] && dpkg-deb -x "$2" "$MACHINE"; }
		editor() { test -s "$MACHINE$1"; }
		systemctl() {
			test -s "$MACHINE/lib/systemd/system/$3.service"
			if type -P systemctl >/dev/null; then command systemctl --root="$MACHINE" "$1" "$3"; fi
		}
		journalctl() { test "$1 $2" = "--unit penstock"; }
		'"${commands//penstock-VERSION-linux-amd64/$name}" >&2 || { say "the commands of $page fail with $package"; exit 1; }
done
say "the packages are fine"
