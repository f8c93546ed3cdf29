#!/usr/bin/env bash
# Does a mounted volume behave as a file system must? Third-party suites and referees: pjdfstest, fsx,
# cp and diff of a real tree, e2fsck, the kernel's ext2 and ext3 drivers, the kernel's NFS client.
#
#   scripts/conformance.sh [--quick] [STAGE…]      without STAGE: all of them
#
# --quick is what `make test` runs. CAIRN=PATH takes a binary of your own, CAIRN_KEEP=1 keeps the volumes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

ALL=(pjdfstest fsx real_tree rounds kernel_made kernel_crashed ext4_turns beside_kernel ext4_features ext4_mmp e2fsprogs_images errors mounted_uring no_uring sigkill bucket programs page powercut unprivileged crash nfs_vm newcomer package boot)
QUICK=
STAGES=()
for arg in "$@"; do
  case $arg in
    --quick) QUICK=1 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; say "stages: ${ALL[*]}"; exit 0 ;;
    *) [[ " ${ALL[*]} " == *" $arg "* ]] || { say "no stage \"$arg\"; there are: ${ALL[*]}" >&2; exit 2; }
       STAGES+=("$arg") ;;
  esac
done
[ ${#STAGES[@]} -gt 0 ] || STAGES=("${ALL[@]}")

make_work conformance
build_cairn
for stage in "${STAGES[@]}"; do
  say "== $stage"
  begun=$SECONDS
  # shellcheck source=/dev/null
  . "scripts/conformance/$stage.sh"
  "stage_$stage"
  say "   ($((SECONDS - begun)) s)"
done
summary conformance
