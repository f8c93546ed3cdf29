#!/usr/bin/env bash
# Builds what is handed on: packages, static programs, an image for containers. In target/package.
#
#   scripts/package.sh deb|rpm     the stripped program, man pages, completions, helpers of mount(8), systemd unit, SBOM
#   scripts/package.sh static      programs without libraries (musl), for x86-64 and arm64; STATIC_ARCHES names them
#   scripts/package.sh image       a container image with nothing but the static program (podman, buildah or docker)
#
# CAIRN_STATIC is a folder with static programs that are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
. scripts/tools.sh

target=${CARGO_TARGET_DIR:-target}
# The metadata in crates/cli/Cargo.toml names this folder.
stage=target/package
mkdir -p "$stage"

# What is in the program: every crate with its version, hash and licence.
write_sbom() {
  need_tool cargo-cyclonedx
  # It writes one beside each manifest; a path on this machine would name nothing elsewhere.
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)} \
    "$TOOLS/bin/cargo-cyclonedx" cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --format json --spec-version 1.5 \
    --describe binaries --no-build-deps --target "$1"
  sed "s|file://$PWD/|file:///cairn/|g" crates/cli/cairn_bin.cdx.json >"$2"
  rm -f crates/*/*.cdx.json xtask/*.cdx.json
}

system_package() {
  declare -A tool=([deb]=cargo-deb [rpm]=cargo-generate-rpm)
  need_tool "${tool[$1]}"
  cargo build --profile dist --locked --package cairn
  # Cargo leaves the symbols of a program whose own package is built otherwise than the profile says.
  strip "$target/dist/cairn"
  rm -rf "$stage"/{sbin,man1,man8,man,completions} && mkdir -p "$stage"/{sbin,man1,man8}
  "$target/dist/cairn" generate man "$stage/man"
  "$target/dist/cairn" generate completions "$stage/completions"
  mv "$stage"/man/*.1 "$stage/man1" && mv "$stage"/man/*.8 "$stage/man8"
  gzip -9 --no-name "$stage"/man?/*
  write_sbom "$(rustc -vV | sed -n 's/^host: //p')" "$stage/cairn.cdx.json"
  for helper in mount umount.fuse fsck mkfs; do ln -s ../bin/cairn "$stage/sbin/$helper.cairn"; done
  rm -f "$stage"/*."$1"
  case $1 in
    deb) "$TOOLS/bin/cargo-deb" deb --quiet --no-build --profile dist --package cairn --output "$stage/" ;;
    rpm) "$TOOLS/bin/cargo-generate-rpm" generate-rpm --profile dist --package crates/cli --output "$stage/" ;;
  esac
  ls "$stage"/*."$1"
}

static_programs() {
  local arch triple
  need_zig
  for arch in ${STATIC_ARCHES:-x86_64 aarch64}; do
    triple=$arch-unknown-linux-musl
    have_std "$triple" || die "Rust's library for $triple is missing: rustup target add $triple"
    cargo zigbuild --quiet --profile dist --locked --package cairn --target "$triple"
    install -m 755 "$target/$triple/dist/cairn" "$stage/cairn-$arch"
  done
  ls "$stage"/cairn-*
}

have_std() {
  [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || { have rustup && rustup --quiet target add "$1" >&2; }
}

# For the machine's own kind, or what STATIC_ARCHES says.
container_image() {
  local arch=${STATIC_ARCHES:-$(uname -m)} context=$stage/image builder
  builder=$(image_builder) || die "no podman, buildah or docker works here; $stage/image is what it would be made from"
  [ -n "${CAIRN_STATIC:-}" ] || STATIC_ARCHES=$arch static_programs >/dev/null
  rm -rf "$context" && mkdir -p "$context"
  cp contrib/container/Containerfile "$context/"; cp "${CAIRN_STATIC:-$stage}/cairn-$arch" "$context/cairn"
  # Buckets are reached by TLS, which needs somebody to trust.
  cp /etc/ssl/certs/ca-certificates.crt "$context/" 2>/dev/null || : >"$context/ca-certificates.crt"
  case $builder in
    buildah) buildah build --quiet --isolation chroot --tag cairn "$context" ;;
    *) "$builder" build --quiet --file "$context/Containerfile" --tag cairn "$context" ;;
  esac
  say "the image is called cairn: $builder images"
}

# One of the programs that build images, which works.
image_builder() {
  local b
  for b in podman buildah docker; do have "$b" && "$b" info >/dev/null 2>&1 && { say "$b"; return; }; done
  return 1
}

case ${1:-} in
  deb | rpm) system_package "$1" ;;
  static) static_programs ;;
  image) container_image ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
