# Two commands for everybody: `make serve` and `make test`. Each does all the set-up it needs.
#   make serve              build cairn and serve ./cairn.img (made if missing) over NFS at 127.0.0.1:2049
#   make serve MNT=DIR      the same, and mount it at DIR with FUSE; ARGS='…' adds options of `cairn serve`
#   make test               formatting, lints, all tests, and conformance on real mounts: what CI runs
#   make conformance        all of conformance: pjdfstest, a million fsx operations, the kernel's NFS client
#   make bench, bench-nfs   the figures of the README, beside their peers, in one run; bench-disks: on emulated disks
#   make bench-bucket      a volume in a bucket behind 20 ms and 100 MB/s, beside s3fs and rclone
#   make charts            docs/figures/*.json, which FIGURES=1 make bench… writes, drawn as charts
#   make book              the documents as a book in target/book, its links checked
#   make bench-log DIR=…    the log beside raft-engine, in that directory
#   make deb, make rpm      a package with the program, man pages, completions, mount.cairn, a systemd unit
#   make static             programs without libraries, for x86-64 and arm64; make image: a container image with one
#   make deny               the dependencies' licences, sources and duplicates, by deny.toml
#   make lab                the papers' experiments on modelled disks in virtual time, with their claims: minutes
#   make lab-page           the same, written into docs/lab.md
#   make crash-nightly      the crash explorer for as long as NIGHTLY_STATES (default 200000) take in each mode
#   make soak               mixed load on real mounts, minutes a mode and an hour in the default: no operation may stall
#   make fuzz               every fuzz target for FUZZ_SECONDS (default 60)

export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin
CARGO_TARGET ?= $(or $(CARGO_TARGET_DIR),target)
CAIRN_BIN = $(CARGO_TARGET)/release/cairn

.PHONY: serve build test conformance bench bench-nfs bench-disks bench-bucket bench-log charts book deb rpm static image deny lab lab-page crash-nightly soak fuzz

serve:
	@MNT='$(MNT)' scripts/setup.sh serve
	cargo build --release --locked --package cairn
	@$(if $(MNT),mkdir -p '$(MNT)')
	$(CAIRN_BIN) serve $(if $(MNT),--mount '$(MNT)') $(ARGS)

build:
	@scripts/setup.sh serve
	cargo build --release --locked --package cairn

test:
	@scripts/setup.sh test
	@scripts/test.sh

conformance:
	@scripts/setup.sh conformance
	@scripts/conformance.sh

bench:
	@scripts/setup.sh bench
	@scripts/bench.sh

bench-nfs:
	@scripts/setup.sh bench-nfs
	@scripts/bench-nfs.sh

bench-disks:
	@scripts/setup.sh bench
	@scripts/bench-disks.sh

bench-bucket:
	@scripts/setup.sh bench-bucket
	@scripts/bench-bucket.sh

bench-log:
	@scripts/setup.sh bench
	cargo run --release --manifest-path scripts/bench/log/Cargo.toml --target-dir $(CARGO_TARGET)/bench-log -- $(or $(DIR),.)

charts:
	cargo run --release --manifest-path scripts/bench/charts/Cargo.toml --target-dir $(CARGO_TARGET)/charts -- docs/figures

book:
	@scripts/book.sh

deb rpm static image:
	@scripts/setup.sh $@
	@scripts/package.sh $@

deny:
	@scripts/setup.sh $@
	@scripts/deny.sh

# Ends with 1 if a verdict is worse than docs/lab.md states.
lab: build
	$(CAIRN_BIN) lab run $(EXPERIMENT)

lab-page: build
	sed -i '/^## Figures/q' docs/lab.md
	echo >> docs/lab.md
	$(CAIRN_BIN) lab run --markdown >> docs/lab.md

crash-nightly: build
	@scripts/crash-nightly.sh

soak:
	@scripts/setup.sh test
	@scripts/soak.sh

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh
