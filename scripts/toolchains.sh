#!/usr/bin/env bash
# Installs what the tests of the clients and of the dashboard need and this machine lacks, with apt:
# Python and Node with the frameworks and the clients of others that ours are tried beside, and a
# browser. Without apt it names what is missing, and the tests that need it fail and say so.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# The packages of Debian, one a line.
python=(
	python3
	python3-setuptools
	python3-wheel
	python3-pip
	python3-venv
	python3-flask
	python3-fastapi
	python3-httpx
	python3-django
	python3-pil
	mypy
	python3-boto3
	python3-celery
	python3-kombu
	python3-pycurl
)

# unpack_postgres puts the programs of PostgreSQL into bin/postgresql: its package would make a database
# and start a server when it is installed. The libraries are installed.
unpack_postgres() {
	local folder version status=0
	version=$(apt-cache depends postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -1)
	[ -n "$version" ] || return 1
	folder=$(mktemp -d)
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends libpq5 \
		$(apt-cache depends "$version" | sed -n 's/.*Depends: \(lib[^ <>]*\)$/\1/p' | grep -v libllvm) >&2 &&
		(cd "$folder" && apt-get download -q "$version" && dpkg-deb -x "$version"_*.deb .) >&2 &&
		mkdir -p bin/postgresql && cp -a "$folder"/usr/. bin/postgresql/ || status=1
	rm -rf "$folder"
	return $status
}

missing=()
if have apt-get; then
	if ! have initdb && [ ! -e bin/postgresql ] && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
		unpack_postgres || { as_root apt-get update -q >&2 && unpack_postgres; } ||
			say "PostgreSQL cannot be had: the test of the outbox in it will fail."
	fi
	for package in "${python[@]}"; do
		installed "$package" || missing+=("$package")
	done
	have node || missing+=(nodejs)
	have npm || missing+=(npm) # not where Node brought its own
	have chromium || have chromium-browser || have google-chrome || missing+=(chromium) # looks at the dashboard
	[ ${#missing[@]} -gt 0 ] || exit 0
	say "Installing with apt what tests need: ${missing[*]}"
	install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2; }
	install || { as_root apt-get update -q >&2 && install; }
	exit
fi
for program in python3 node npm; do
	have "$program" || say "$program is not installed: tests of the clients will fail."
done
