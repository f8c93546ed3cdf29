# The tests of mounted volumes once more, over io_uring: `cargo test` runs them over whatever the machine has been set
# to, which on a new one is /dev/fuse.
# shellcheck shell=bash

stage_mounted_uring() {
  [ -c /dev/fuse ] || { skip "mounted over io_uring: there is no /dev/fuse"; return; }
  [[ " $(transports) " == *" on "* ]] || { leave_out "mounted over io_uring: this kernel does not offer it, or only to root"; return; }
  # Where a binary of somebody's own is tried there are no tests built with it.
  [ -z "${CAIRN_GIVEN:-}" ] || { leave_out "mounted over io_uring: CAIRN names a program, whose tests are not here"; return; }
  local before log=$WORK/mounted-uring.log
  before=$(cat $URING); echo Y 2>/dev/null >$URING
  # The whole workspace's features, so that nothing is built again.
  cargo test --workspace --locked --no-fail-fast --test 'mounted*' >"$log" 2>&1
  echo "$before" 2>/dev/null >$URING
  check "mounted over io_uring: $(grep -c '^test result: ok' "$log") programs of tests" passed_over_uring "$log"
}
passed_over_uring() {
  local programs=("$ROOT"/crates/cli/tests/mounted*.rs)
  ! grep -q '^test .* FAILED\|^error' "$1" && [ "$(grep -c '^test result: ok' "$1")" = "${#programs[@]}" ] && return 0
  grep '^test .* FAILED\|^error' "$1" | head -n 5; return 1
}
