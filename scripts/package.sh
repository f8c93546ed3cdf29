#!/usr/bin/env bash
# Builds a package: the stripped program, its man pages and completions, the helpers of mount(8) and
# its like, the systemd unit.
#
#   scripts/package.sh deb|rpm
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

kind=${1:-}
declare -A tool=([deb]=cargo-deb [rpm]=cargo-generate-rpm)
[ -n "${tool[$kind]:-}" ] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
command -v "${tool[$kind]}" >/dev/null || cargo install --quiet --locked "${tool[$kind]}"

target=${CARGO_TARGET_DIR:-target}
# The metadata in crates/cli/Cargo.toml names this folder.
stage=target/package
cargo build --profile dist --locked --package cairn
rm -rf "$stage" && mkdir -p "$stage"/{sbin,man1,man8}
"$target/dist/cairn" generate man "$stage/man"
"$target/dist/cairn" generate completions "$stage/completions"
mv "$stage"/man/*.1 "$stage/man1" && mv "$stage"/man/*.8 "$stage/man8"
gzip -9 --no-name "$stage"/man?/*
for helper in mount fsck mkfs; do ln -s ../bin/cairn "$stage/sbin/$helper.cairn"; done

case $kind in
  deb) cargo deb --quiet --no-build --profile dist --package cairn --output "$stage/" ;;
  rpm) cargo generate-rpm --profile dist --package crates/cli --output "$stage/" ;;
esac
ls "$stage"/*."$kind"
