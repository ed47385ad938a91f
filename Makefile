# Parley's verbs. Each installs what it needs (Debian packages, by apt) and is
# what CI runs: see .ci/run.

# hraban/opus without libopusfile; a resolver and user look-up that need no
# libc, so that the binary can be fully static.
TAGS      := nolibopusfile,netgo,osusergo
GO        := go
VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION) -linkmode external -extldflags "-static -lm"
LINT      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN      := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME  := 5000x

# Debian packages: to build, to run with the offline default, and to test.
BUILD_DEPS := gcc libc6-dev pkg-config libopus-dev libwebrtc-audio-processing-dev
RUN_DEPS   := pocketsphinx pocketsphinx-en-us espeak-ng
TEST_DEPS  := flite openssl iproute2 nftables procps tshark opus-tools ffmpeg mosquitto mosquitto-clients python3 python3-websockets

export GOFLAGS := -tags=$(TAGS)

.PHONY: help build run demo test race fuzz bench lint vuln deps-build deps-run deps-test clean

help: ## Show the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: deps-build ## Build bin/parley, fully static
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/parley ./cmd/parley

run: build deps-run ## Serve real devices with config.toml
	bin/parley serve --config config.toml

demo: build deps-run ## Hear a question become an answer
	bin/parley demo

test: deps-test ## All tests, with the race detector, in random order
	$(GO) vet ./...
	$(GO) test -race -shuffle=on -count=1 -timeout=14m ./...

race: test ## The same as test

fuzz: deps-build ## Each fuzz target for FUZZTIME, a number of runs or a time
	scripts/fuzz $(FUZZTIME)

bench: deps-test ## Benchmarks with allocations, then the server against its limits
	$(GO) test -run='^$$' -bench=. -benchmem ./...
	$(GO) run ./internal/bench

lint: deps-build ## gofmt, go vet, staticcheck and the rest of .golangci.yml
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'run gofmt -w on these'; exit 1; }
	GOFLAGS= $(GO) run $(LINT) run --build-tags $(TAGS)

vuln: deps-build ## Known vulnerabilities in what is linked
	$(GO) run $(VULN) ./...

deps-build:
	@scripts/deps $(BUILD_DEPS)
deps-run:
	@scripts/deps $(RUN_DEPS)
deps-test: deps-build deps-run
	@scripts/deps $(TEST_DEPS)
	@command -v npm >/dev/null || scripts/deps nodejs npm # for MCP servers written by others; any Node will do

clean: ## Remove what was built
	rm -rf bin demo-answer.wav demo-answer.ogg
