# Varve: make alone prints the targets.
.DEFAULT_GOAL := help
.PHONY: help build check test race bench

help: ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

build: ## bin/varve, one static binary
	CGO_ENABLED=0 go build -trimpath -o bin/varve ./cmd/varve

check: ## vet, formatting and the structure tests, under a minute
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet ./...
	go test ./test/arch

test: ## every test
	go test ./...

race: ## every test under the race detector
	go test -race ./...

bench: build ## Varve beside Apache Kafka on this machine (BENCHARGS=-help lists the flags)
	go build -trimpath -o bin/bench ./test/bench
	bin/bench $(BENCHARGS)
