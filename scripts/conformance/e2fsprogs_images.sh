# The damaged images of e2fsprogs' own tests: no panic, no hang, what is repaired e2fsck accepts
# (scripts/e2fsprogs-images.sh). Their source is not a part of any package: E2FSPROGS_TESTS names the folder `tests` of it.
# shellcheck shell=bash

stage_e2fsprogs_images() {
  local tests=${E2FSPROGS_TESTS:-$TOOLS/e2fsprogs/tests}
  [ -d "$tests" ] || { leave_out "e2fsprogs' images: no $tests (apt-get source e2fsprogs; E2FSPROGS_TESTS names it)"; return; }
  check "e2fsprogs' damaged images" env CAIRN="$CAIRN" scripts/e2fsprogs-images.sh "$tests"
}
