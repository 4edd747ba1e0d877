# Varve: make alone prints the targets.
.DEFAULT_GOAL := help
.PHONY: help build check test race lint fuzz minio crash power chaos interop bench demo ci

# Tools are built at these versions into .cache/bin, beside a stamp that names the version.
MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c
STATICCHECK_VERSION := v0.8.2
minio := .cache/minio-$(MINIO_VERSION)
staticcheck := .cache/staticcheck-$(STATICCHECK_VERSION)

help: ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

build: ## bin/varve, one static binary
	CGO_ENABLED=0 go build -trimpath -o bin/varve ./cmd/varve

check: ## vet, formatting and the structure tests, under a minute
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go test ./test/arch

test: $(minio) ## every test
	go test ./...

race: $(minio) ## every test under the race detector
	go test -race ./...

lint: $(staticcheck) ## vet, staticcheck, and nothing left half done
	go vet ./...
	.cache/bin/staticcheck ./...
	@! grep -rnE 'TODO|FIXME|\bt\.Skip' --include='*.go' --exclude-dir=.cache .

fuzz: ## every fuzz target of the module for FUZZTIME (60s) each
	go run ./test/fuzz -time $(or $(FUZZTIME),60s) $(FUZZARGS)

minio: $(minio) ## the pinned MinIO that tests run, in .cache/bin

$(minio):
	GOBIN=$(CURDIR)/.cache/bin go install github.com/minio/minio@$(MINIO_VERSION)
	@touch $@

$(staticcheck):
	GOBIN=$(CURDIR)/.cache/bin go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	@touch $@

# Debian's names of what the clients need; a package is installed if its program is missing.
KCAT_VERSION := 1.7.1-2
need = command -v $(1) >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(2); }

crash: $(minio) ## kill -9 in the middle of every step, 100 rounds on MinIO (CRASHARGS=-help lists the flags)
	go run ./test/crash/kill $(CRASHARGS)

interop: build $(minio) ## clients and tools that were not made for Varve, against a node on MinIO
	@$(call need,kcat,kcat=$(KCAT_VERSION))
	@$(call need,gcc,gcc libc6-dev)
	@$(call need,mvn,maven)
	@$(call need,java,default-jdk-headless)
	cd test/interop && go vet . && go test -count=1 -timeout 20m . -args $(INTEROPARGS)

bench: build ## Varve beside Apache Kafka on this machine (BENCHARGS=-help lists the flags)
	go build -trimpath -o bin/bench ./test/bench
	bin/bench $(BENCHARGS)

demo: build ## the main job on real input: write, offload, read back, compare (DEMOARGS=-h lists the flags)
	go run ./test/demo -varve bin/varve $(DEMOARGS)

power: ## power losses on a real ext4, as root, and a control without fdatasync that must lose (POWERARGS=-h lists the flags)
	go run ./test/power $(POWERARGS)

chaos: build $(minio) ## three nodes broken and healed for 10 minutes, then all read and judged, as root (CHAOSARGS=-h lists the flags)
	go run ./test/chaos/run -varve bin/varve $(CHAOSARGS)

ci: ## what runs before anything lands: make test, then make interop
	.ci/run
