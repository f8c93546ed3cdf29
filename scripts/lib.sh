# Sourced by the scripts of this folder: where things are, counting of results, volumes that are
# served and taken away again. It knows no test; every helper cleans up after itself at exit.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
# What is tried is what users build, unless another profile of cargo's is named: .ci/run builds one for all.
PROFILE=${CAIRN_PROFILE:-release}
BUILT=$TARGET/${PROFILE/#dev/debug}
CAIRN_GIVEN=${CAIRN:-}
CAIRN=${CAIRN:-$BUILT/cairn}
TOOLS=${CAIRN_TOOLS:-$TARGET/tools}
URING=/sys/module/fuse/parameters/enable_uring

PASSED=0 FAILED=0 SKIPPED=0
SERVERS=()    # process ids that we started
MOUNTS=()     # mount points that we made, newest last

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }
pass() { PASSED=$((PASSED + 1)); say "ok       $*"; }
fail() { FAILED=$((FAILED + 1)); say "FAILED   $*"; }
# Left out, with the reason. Where CI is set there is no excuse: the machine has to offer it.
skip() {
  if [ "${CI:-}" = true ]; then fail "$* (skipped, which CI does not allow)"; return; fi
  SKIPPED=$((SKIPPED + 1)); say "skipped  $*"
}
# Left out because something out there could not be reached: no fault of this machine, not even in CI.
leave_out() { SKIPPED=$((SKIPPED + 1)); say "skipped  $*"; }
# check WHAT COMMAND…: one result; the command's last lines are shown when it fails.
check() {
  local what=$1 log; shift; log=$(mktemp "$WORK/log.XXXXXX")
  if "$@" >"$log" 2>&1; then pass "$what"; else fail "$what"; tail -n 5 "$log" | sed 's/^/         | /'; return 1; fi
}
# The line that CI reads. Call it last: it is also the exit status.
summary() {
  [ "$SKIPPED" = 0 ] || say "$SKIPPED skipped (reasons above)"
  say "$1: $PASSED passed, $FAILED failed"; [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}

is_root() { [ "$(id -u)" = 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }

# A folder for this run, in memory where there is room for it, since most volumes are small.
make_work() {
  local base=${CAIRN_WORK:-}
  if [ -z "$base" ]; then
    base=${TMPDIR:-/tmp}
    [ "$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)" -ge 6000 ] 2>/dev/null && base=/dev/shm
  fi
  WORK=$(mktemp -d "$base/cairn-$1.XXXXXX") || die "no room for work under $base; CAIRN_WORK=DIR names a folder that is there"
  chmod 755 "$WORK"
  # What the kernel's switch for FUSE over io_uring was, to leave it as we found it.
  URING_BEFORE=$(cat $URING 2>/dev/null || true)
  trap cleanup EXIT
  trap 'exit 130' INT TERM
}

# Options of mkfs for a mode: not every mode writes the usual kind of volume.
kind_for() { case $1 in sync | soft-updates) say "--profile ext3" ;; esac; }

# on_disk NAME: a path next to what was built, which is on a disk even where $WORK is in memory: only there do writes
# go past the page cache. Who uses it removes it.
on_disk() { say "$TARGET/conformance-$1"; }

cleanup() {
  local i l
  for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do release "${MOUNTS[i]}"; done
  for i in "${SERVERS[@]}"; do kill -TERM "$i" 2>/dev/null; done
  for i in "${SERVERS[@]}"; do wait "$i" 2>/dev/null; done
  losetup -l -n -O NAME,BACK-FILE 2>/dev/null | grep -F "$WORK/" | while read -r l _; do losetup -d "$l"; done
  [ -z "$URING_BEFORE" ] || [ ! -w $URING ] || echo "$URING_BEFORE" >$URING
  if [ -n "${CAIRN_KEEP:-}" ]; then say "kept: $WORK"; else rm -rf "$WORK"; fi
}

# release DIR: unmount it, whatever state it is in (a dead server leaves "not connected" behind).
release() {
  grep -qsF " $1 " /proc/self/mounts || return 0
  umount "$1" 2>/dev/null || fusermount3 -u "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || fusermount3 -uz "$1" 2>/dev/null
}

# write_figures RUN: what was noted in $RESULTS, for `make charts`, as docs/figures/RUN.json if FIGURES=1 asks for it.
write_figures() {
  [ -n "${FIGURES:-}" ] || return 0
  "$ROOT/scripts/bench/figures.py" "$1" "$RESULTS" "$ROOT/docs/figures/$1.json" \
    "make $1: $(nproc) processors, Linux $(uname -r); only the ratios of one run count"
}

build_cairn() {
  [ -z "${CAIRN_GIVEN:-}" ] || { [ -x "$CAIRN" ] || die "CAIRN=$CAIRN is not a program"; return; }
  say "building cairn ($PROFILE)"
  (cd "$ROOT" && cargo build --quiet --profile "$PROFILE" --locked --package cairn) || die "the build fails"
}

# The suites that come from crates.io, built once.
install_suites() {
  if [ ! -x "$TOOLS/bin/pjdfstest" ] || [ ! -x "$TOOLS/bin/fsx" ]; then
    say "building pjdfstest and fsx (once, about a minute)"
    cargo install --quiet --debug --locked --root "$TOOLS" --target-dir "$TOOLS/build" pjdfstest fsx 2>&1 |
      grep -v 'be sure to add' || true
    rm -rf "$TOOLS/build"
  fi
  [ -x "$TOOLS/bin/pjdfstest" ] && [ -x "$TOOLS/bin/fsx" ] || die "pjdfstest and fsx cannot be built; is crates.io reachable?"
}

# debian_package: the path of our package, built unless CAIRN_DEB names one.
debian_package() {
  [ -z "${CAIRN_DEB:-}" ] || { say "$CAIRN_DEB"; return; }
  scripts/setup.sh deb >"$WORK/deb.log" 2>&1 && scripts/package.sh deb 2>>"$WORK/deb.log" | tail -n 1
}
# red_hat_package: the same for the other family; CAIRN_RPM.
red_hat_package() {
  [ -z "${CAIRN_RPM:-}" ] || { say "$CAIRN_RPM"; return; }
  scripts/setup.sh rpm >"$WORK/rpm.log" 2>&1 && scripts/package.sh rpm 2>>"$WORK/rpm.log" | tail -n 1
}
# A small Debian as an archive, kept: DEBIAN is its path.
debian_archive() {
  local status=0
  DEBIAN=$TOOLS/debian.tar
  [ -s "$DEBIAN" ] || scripts/boot-vm.sh debian "$DEBIAN" >"$WORK/debian.log" 2>&1 || status=$?
  case $status in
    0) return 0 ;;
    3) leave_out "a clean Debian: $(tail -n 1 "$WORK/debian.log")" ;;
    *) fail "a clean Debian: $(tail -n 1 "$WORK/debian.log")" ;;
  esac
  return 1
}

# Transports that this machine offers, by the value of --fuse-uring.
transports() {
  if [ -r $URING ] && { grep -q Y $URING || [ -w $URING ]; }; then say "on off"; else say "off"; fi
}
transport_name() { if [ "$1" = on ]; then say "io_uring"; else say "/dev/fuse"; fi; }

# serve LOG ARGS…: start `cairn serve`, wait for its `ready`; SERVER is its process.
serve() {
  local log=$1; shift
  : >"$log" # what an earlier server said is not this one's "ready"
  "$CAIRN" serve "$@" >"$log" 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  await_ready "$log" "$SERVER"
}
await_ready() {
  local _
  for _ in $(seq 1500); do
    grep -q '^ready' "$1" && return 0
    kill -0 "$2" 2>/dev/null || { say "cairn ended before it was ready: $(tail -n 1 "$1")"; return 1; }
    sleep 0.02
  done
  say "cairn is not ready within 30 s: $(tail -n 1 "$1")"; return 1
}
# serve_at DIR IMAGE ARGS…: the same with a FUSE mount and nothing else.
serve_at() {
  local dir=$1 image=$2; shift 2
  mkdir -p "$dir"; MOUNTS+=("$dir")
  serve "$dir.log" "$image" --no-nfs --mount "$dir" "$@"
}
# Close cleanly: SIGTERM, and the exit status of the server.
stop() {
  local status
  kill -TERM "$SERVER" 2>/dev/null; wait "$SERVER"; status=$?
  [ "$status" = 0 ] || say "cairn ended with status $status"; return "$status"
}

# kernel_mount DIR IMAGE TYPE [OPTIONS]: the kernel's own driver, on a loop device.
kernel_mount() { mkdir -p "$1"; MOUNTS+=("$1"); mount -t "$3" -o "loop${4:+,$4}" "$2" "$1"; }

fsck_clean() {
  e2fsck -fn "$1" >"$WORK/e2fsck.log" 2>&1 && return 0
  grep -v '^Pass\|^e2fsck\|^$' "$WORK/e2fsck.log" | head -n 5; return 1
}
