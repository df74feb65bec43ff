#!/usr/bin/env bash
# A pull worker of curl and jq: it runs a command for each job, with the payload on its standard input.
#
#   CHANNEL_TOKEN=... CONSUMER_TOKEN=... ./worker.sh CHANNEL CONSUMER COMMAND [ARGUMENT...]
#
# A command that ends with 0 has done the job; what it prints is logged. Another code is a failed attempt: the
# broker gives the job again after the backoff of the consumer. The lease is renewed while the command runs.
# BROKER is the broker. JOBS ends the worker after so many jobs; without it the worker runs until it is stopped.
set -euo pipefail

consumer="${BROKER:-http://127.0.0.1:8080}/channel/$1/consumer/$2"
shift 2
: "${CHANNEL_TOKEN:?the token of the channel}" "${CONSUMER_TOKEN:?the token of the consumer}"
lease_seconds=60

ask() { # PATH JSON: a request with the tokens, which no list of processes shows
	curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused --max-time 60 -H @- -d "$2" "$consumer/$1" <<-END
		X-Broker-Channel-Token: $CHANNEL_TOKEN
		X-Broker-Consumer-Token: $CONSUMER_TOKEN
		Content-Type: application/json
	END
}

renew() { # ID LEASE: until it is killed
	while sleep $((lease_seconds / 3)); do
		ask jobs "$(jq -cn --arg id "$1" --arg lease "$2" --argjson s "$lease_seconds" \
			'{Updates: [{ID: $id, Lease: $lease, NextState: "INFLIGHT", Timeout: $s}]}')" >/dev/null || true
	done
}

payload() { # the bytes of the message of a job
	local message
	message=$(jq -c .Message)
	if [ "$(jq -r '.PayloadEncoding // ""' <<<"$message")" = base64 ]; then
		jq -r .Payload <<<"$message" | base64 -d
	else
		jq -j .Payload <<<"$message"
	fi
}

done_jobs=0
while [ -z "${JOBS:-}" ] || [ "$done_jobs" -lt "$JOBS" ]; do
	claim=$(ask claim "{\"Limit\":1,\"Wait\":\"20s\",\"Timeout\":$lease_seconds}") || { sleep 1; continue; }
	job=$(jq -c '.Result[0] // empty' <<<"$claim")
	[ -n "$job" ] || continue
	id=$(jq -r .ID <<<"$job") lease=$(jq -r .Lease <<<"$job")
	renew "$id" "$lease" >/dev/null 2>&1 &
	renewer=$!
	code=0
	output=$(payload <<<"$job" | "$@") || code=$?
	kill "$renewer" 2>/dev/null || true
	wait "$renewer" 2>/dev/null || true
	if [ "$code" -eq 0 ]; then
		next='{ID: $id, Lease: $lease, NextState: "DELIVERED"}'
	else
		next='{ID: $id, Lease: $lease, NextState: "QUEUED", Failed: true, Reason: ("the command ended with " + $code)}'
	fi
	ask jobs "$(jq -cn --arg id "$id" --arg lease "$lease" --arg code "$code" "{Updates: [$next]}")" >/dev/null ||
		echo "job $id: the report was not taken; the broker gives the job again" >&2
	echo "job $id: $code${output:+: $output}"
	done_jobs=$((done_jobs + 1))
done
