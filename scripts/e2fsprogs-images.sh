#!/usr/bin/env bash
# The damaged images of e2fsprogs' own tests: whatever cairn does with one, it neither panics nor hangs.
#
#   scripts/e2fsprogs-images.sh FOLDER      FOLDER: `tests` of e2fsprogs' source (apt-get source e2fsprogs)
#
# CAIRN=PATH takes a binary of your own.
set -uo pipefail
[ $# = 1 ] && [ -d "$1" ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

make_work images
build_cairn
image=$WORK/image images=0 written=0

# One command on the image, which may fail, but in its own words and soon.
does_no_harm() {
  local status
  timeout 15 "$CAIRN" "$@" >"$WORK/out" 2>&1; status=$?
  [ "$1" = mkdir ] && [ "$status" = 0 ] && written=$((written + 1))
  if [ "$status" -lt 100 ] && ! grep -q panicked "$WORK/out"; then return 0; fi
  fail "$name: cairn $1: status $status: $(grep -m1 -A1 panicked "$WORK/out" | tr '\n' ' ')"; return 1
}

for packed in "$folder"/*/image.gz; do
  name=$(basename "$(dirname "$packed")")
  gunzip -c "$packed" >"$image" 2>/dev/null || continue
  images=$((images + 1)) bad=
  echo text >"$WORK/text"
  does_no_harm info "$image" || bad=1
  does_no_harm ls "$image" / || bad=1
  does_no_harm fsck "$image" || bad=1
  does_no_harm mkdir "$image" /cairn-folder || bad=1
  does_no_harm put "$image" "$WORK/text" /cairn-file || bad=1
  does_no_harm rm "$image" /cairn-file || bad=1
  does_no_harm fsck --repair "$image" || bad=1
  [ -n "$bad" ] || PASSED=$((PASSED + 1))
done
say "$images images, $written of them written to"
summary e2fsprogs-images
