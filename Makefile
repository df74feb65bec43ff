# Every command that CI runs is a target here; `make` alone explains them.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.6.1
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4

# Of dist, packages, reproducible; empty: their defaults.
PLATFORMS ?=
# Arguments, e.g. make test ARGS='-run TestMySQL ./durable/...'
ARGS      ?=
# Of build: optional parts, e.g. make build TAGS=nats
TAGS      ?=
BENCH     ?=
FUZZTIME  ?= 10s
MINUTES   ?= 30
CHAOS     ?=
# One drill (BrokerKilled, RedisAway, ...; empty: all), and how many jobs wait.
DRILL     ?=
JOBS      ?= 1000000
# A test that injects a fault says so in its name.
FAULTS    ?= Fault|Kill|Crash|Restart|Pause|Cut|Lost|Wiped|Unknown
# A test that needs a real server names it (TestMiniredis does not); of a test on both kinds of
# stores, its part on real ones.
REAL      := MySQL|Redis|Real|/^real.servers$$
# For make t: the branch that a change will join, and the tests of cmd/broker that are enough for it.
BASE      ?= main
SMOKE     := ^Test(TheDefaultsAreThePromisedOnes|ThePageOfSettingsIsTrue|WhatIsWrongIsNamed|HelpAndVersionGoToStdout|Push|Pull|Redrive|Bulks|RestartKeepsEverything)$$

.DEFAULT_GOAL := help
.PHONY: help run listen demo-responses build dist packages reproducible seeds t test test-quick mutants contract modules lint vuln bench bench-compare bench-guard bench-tuning bench-bridge bench-scale bench-clients peers bench-go pictures board openapi breaking drills fuzz up down relay-real faults upgrade galera test-faults test-clock clean webhooks

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## run a broker on the embedded stores, with demo data, on 127.0.0.1:8080
	@test -x bin/broker || echo 'building bin/broker: the first time takes a minute or two'
	@$(GO) build -o bin/broker ./cmd/broker
	bin/broker serve --demo

listen: ## run a push consumer that prints what it gets, on 127.0.0.1:9000; ON= another address
	$(GO) run ./cmd/broker listen --on $(or $(ON),127.0.0.1:9000)

demo-responses: ## show a response on its way back: a sender, a slow receiver and a broker, for seconds
	$(GO) run ./cmd/broker demo-responses

build: ## build bin/broker and bin/bench, static; TAGS=nats: with the sender of docs/nats.md
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '-s -w -X main.version=$(VERSION)' -o bin/broker ./cmd/broker
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/bench ./cmd/bench

dist: ## build what a release has into dist/: archives, deb, rpm, SBOMs, the chart, digests; PLATFORMS=
	PLATFORMS='$(PLATFORMS)' ./scripts/dist.sh $(VERSION)

packages: ## build the deb and the rpm into dist/ and look at them with lintian and rpm; PLATFORMS= (linux/amd64)
	PARTS=packages PLATFORMS='$(or $(PLATFORMS),linux/amd64)' ./scripts/dist.sh $(VERSION)
	./scripts/lint-packages.sh dist

reproducible: ## build a release twice, in other folders and without a cache, and compare the bytes; PLATFORMS= (linux/amd64)
	PLATFORMS='$(or $(PLATFORMS),linux/amd64)' ./scripts/reproducible.sh $(VERSION)

test: ## run every test with the race detector on real servers (installs them if missing); ARGS=
	# Without the race detector there is time for 1000 seeds. They take what the other tests leave of the processors.
	$(GO) test -c -o bin/simulation.test ./internal/test/simulation
	./scripts/seeds.sh ./scripts/servers.sh $(ARGS)

seeds: ## run N= (1000) seeds of the simulation from FROM= (1) on, without the race detector
	$(GO) test -c -o bin/simulation.test ./internal/test/simulation
	cd internal/test/simulation && GOGC=400 ../../../bin/simulation.test -test.v -test.run='TestSeeds$$' \
		-simulation.from=$(or $(FROM),1) -simulation.seeds=$(or $(N),1000)

t: ## run the tests of what changed since BASE= (main) and of what imports it, without real servers, in a minute; ARGS=
	@PENSTOCK_TEST_SERVERS=none $(GO) run ./internal/test/affected -base '$(BASE)' -skip '$(REAL)' -smoke '$(SMOKE)' $(ARGS)

test-quick: ## run the tests that need no real server, without the race detector
	PENSTOCK_TEST_SERVERS=none $(GO) test -skip '$(REAL)' $$($(GO) list ./... | grep -v '/internal/test/servers$$')

mutants: ## plant the mistakes of internal/test/mutants one by one and expect a failing test for each; NAMES= some of them
	./scripts/mutants.sh $(NAMES)

contract: ## compare openapi.json with what tests of ./api and ./cmd/broker send and get, both ways; ARGS=-codes: also codes by route
	$(GO) test -C internal/test/contract .
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; export PENSTOCK_TRAFFIC=$$folder; \
	tests=$$(grep -v '^#' internal/test/contract/tests.txt | paste -s -d '|'); \
	$(GO) test -count=1 ./api && \
	PENSTOCK_TEST_SERVERS=none $(GO) test -count=1 -skip '/real.servers$$' -run "^($$tests)\$$" ./cmd/broker && \
	$(GO) run -C internal/test/contract . $(ARGS) "$$folder"

modules: ## test the chart, docker-compose.yml, the SQL for MySQL 8, S3-compatible stores, the sender of NATS
	$(GO) test -C internal/test/deployment -count=1 ./... # what they read is outside of the module: no cache sees it change
	$(GO) test -C internal/test/mysqlengine -count=1 ./...
	$(GO) test -C internal/test/mysqlgrammar -count=1 ./...
	$(GO) test -C internal/test/objectstore -count=1 ./...
	$(GO) test -C internal/test/natsserver -count=1 ./...

lint: ## check format, bounds of lines and functions, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	$(GO) test ./internal/test/shape # bounds of lines, functions, files and imports
	$(GO) vet ./...
	$(GO) vet -tags clockjump ./cmd/broker
	$(GO) vet -tags galera ./cmd/broker
	$(GO) vet -tags nats ./cmd/broker
	$(GO) vet -C clients/go ./... # a module of its own
	$(GO) vet -C internal/test/contract . # another one
	$(GO) vet -C internal/test/deployment ./...
	$(GO) vet -C internal/test/mysqlengine ./...
	$(GO) vet -C internal/test/mysqlgrammar ./...
	$(GO) vet -C internal/test/objectstore ./...
	$(GO) vet -C internal/test/natsserver ./...
	$(GO) run $(STATICCHECK) ./...
	cd clients/go && $(GO) run $(STATICCHECK) ./...
	@git ls-files '*.go' | grep -v -e _test.go -e internal/test/ | xargs wc -l | awk '$$1 > 350 && $$2 != "total" {print "a second noun?", $$2, $$1, "lines"}'
	@$(GO) list -C bench/peers -deps . >/dev/null # a module of its own: it knows every dependency of ours

vuln: ## look for known vulnerabilities in what the code calls (asks the network)
	$(GO) run $(GOVULNCHECK) ./...

bench: ## measure publish, push, batch and pull on private real servers, under five minutes
	./scripts/servers.sh -exec ./scripts/bench.sh $(BENCH)

bench-compare: ## compare publish, push, pull and batch with another commit, interleaved: REF= (default HEAD)
	./scripts/servers.sh -exec ./scripts/bench-compare.sh $(or $(REF),HEAD)

bench-guard: ## fail if publish, push, pull or batch is slower than the last tag (or REF=) by more than 5 %, ten minutes
	@ref=$(or $(REF),$$(git describe --tags --abbrev=0 2>/dev/null)); test -n "$$ref" || { echo "there is no tag to compare with: name a commit, make bench-guard REF="; exit 2; }; \
	LEAST=0.95 TURNS=$(or $(TURNS),7) ./scripts/servers.sh -exec ./scripts/bench-compare.sh "$$ref"

bench-tuning: ## measure what each knob costs and buys; ROUNDS= (3)
	ROUNDS=$(ROUNDS) ./scripts/servers.sh -exec ./scripts/tuning.sh

bench-bridge: ## what each stage of the broker costs, from the smallest program with the same path; ROUNDS= (5)
	ROUNDS=$(ROUNDS) ./scripts/servers.sh -exec ./scripts/bridge.sh

bench-scale: ## fit what a message costs each part, predict other loads from it, six minutes; ROUNDS= (3) RATE= (1000000)
	ROUNDS=$(ROUNDS) RATE=$(RATE) ./scripts/servers.sh -exec ./scripts/scale.sh

bench-clients: ## measure our clients beside Celery and BullMQ on Redis, workers killed, under ten minutes; CLIENTS= flags
	./scripts/clients.sh $(CLIENTS)

peers: ## compare with RabbitMQ, NATS JetStream and asynq in the same run
	./scripts/peers.sh $(PEERS)

webhooks: ## verify signed deliveries with the npm package standardwebhooks (needs node, npm)
	./scripts/webhooks.sh

bench-go: ## run the Go benchmarks of the packages
	$(GO) test -run '^$$' -bench . -skip '^BenchmarkDrill' -benchmem ./...

pictures: ## write docs/pictures, one for each page of the dashboard, from a broker with data in Chromium
	PENSTOCK_SCREENS=$(CURDIR)/docs/pictures PENSTOCK_TEST_SERVERS=none $(GO) test -count=1 -run EachPageOfTheDashboardHasAPicture ./cmd/broker

board: ## write the board for Grafana, deploy/grafana/penstock.json
	$(GO) generate ./deploy/grafana

openapi: ## write the description of the API, internal/feature/openapi/openapi.json
	$(GO) generate ./internal/feature/openapi/generate

breaking: ## list what of openapi.json would break clients of the last tag (or REF=)
	@./scripts/breaking.sh '$(REF)'

drills: ## break each server once and measure how soon all is as before; DRILL= one of them, JOBS= backlog (1000000)
	PENSTOCK_DRILL_JOBS=$(JOBS) ./scripts/servers.sh -exec $(GO) test -run '^$$' -bench '^BenchmarkDrill$(DRILL)' -benchtime 1x -timeout 2h ./cmd/broker

fuzz: ## run each fuzz target for FUZZTIME (10s)
	./scripts/fuzz.sh $(FUZZTIME)

test-faults: ## run only the tests that kill, pause, cut and wipe; FAULTS= regular expression
	./scripts/servers.sh -run '$(FAULTS)' ./...

test-clock: ## run the tests of a broker whose wall clock jumps; they build the standard library anew, minutes of CPU
	./scripts/servers.sh -exec $(GO) test -tags clockjump -count=1 -run ClockOfABroker ./cmd/broker

faults: ## break everything under load for MINUTES (30) and check every promise; CHAOS= more flags
	CGO_ENABLED=0 $(GO) build -trimpath -tags failpoint -ldflags '-X main.version=$(VERSION)' -o bin/broker-faults ./cmd/broker
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/bench ./cmd/bench
	./scripts/servers.sh -exec bin/bench chaos --broker bin/broker-faults --redis all --minutes $(MINUTES) $(CHAOS)

upgrade: ## upgrade three brokers from the last tag (or REF=) under load and faults for MINUTES (30) and check every promise; CHAOS=
	./scripts/upgrade.sh '$(REF)' --redis all --minutes $(MINUTES) $(CHAOS)

galera: ## run the tests of three brokers on three nodes of a Galera cluster; ARGS=
	./scripts/galera.sh $(ARGS)

relay-real: ## the end-to-end relay against real servers
	./scripts/relay-real.sh

up: ## start broker, MySQL and Redis with docker compose and wait until they are healthy
	docker compose up -d --build --wait

down: ## stop them; their data stays (docker compose down -v deletes it)
	docker compose down

clean: ## delete what the targets above have built
	rm -rf bin dist
	$(GO) clean -testcache
