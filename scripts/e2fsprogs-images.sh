#!/usr/bin/env bash
# The damaged images of e2fsprogs' own tests: whatever cairn does with one, it neither panics nor hangs; its fsck finds
# damage where e2fsck does, and what it says it has repaired e2fsck accepts. What it leaves to e2fsck is named, with the
# reason, in scripts/e2fsprogs-exceptions.txt.
#
#   scripts/e2fsprogs-images.sh FOLDER      FOLDER: `tests` of e2fsprogs' source (apt-get source e2fsprogs)
#
# CAIRN=PATH takes a binary of your own.
set -uo pipefail
[ $# = 1 ] && [ -d "$1" ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
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

exceptions=$PWD/scripts/e2fsprogs-exceptions.txt
grep -v '^#' "$exceptions" | cut -d: -f1 | sort >"$WORK/excepted"
: >"$WORK/differ"

# The verdict of our fsck beside e2fsck's, on the image as it was packed; then e2fsck's on what we have repaired.
agrees() {
  local theirs ours
  timeout 30 e2fsck -fn "$image" >"$WORK/theirs" 2>&1; theirs=$?
  timeout 30 "$CAIRN" fsck "$image" >"$WORK/ours" 2>&1; ours=$?
  # What a journal holds is replayed by the repair alone. 8 and more: e2fsck could not look at it.
  if [ "$theirs" = 4 ] && [ "$ours" = 0 ]; then echo "$name: e2fsck finds damage, cairn none"; return 1; fi
  if [ "$theirs" -lt 8 ] && [ "$ours" != 0 ] && ! grep -q "blocks in use\|replay it first" "$WORK/ours"; then
    echo "$name: not checked: $(tail -n1 "$WORK/ours")"; return 1
  fi
  cp "$image" "$WORK/mended"
  timeout 60 "$CAIRN" fsck --repair "$WORK/mended" >"$WORK/ours" 2>&1; ours=$?
  if ! grep -q 'it is sound now\|: sound, closed cleanly' "$WORK/ours"; then
    [ "$theirs" = 0 ] || [ "$theirs" -ge 8 ] && return 0
    echo "$name: not repaired: $(tail -n1 "$WORK/ours")"; return 1
  fi
  timeout 30 e2fsck -fn "$WORK/mended" >"$WORK/theirs" 2>&1 && return 0
  echo "$name: repaired, but e2fsck: $(grep -v '^$\|^Pass\|^e2fsck' "$WORK/theirs" | head -n1)"; return 1
}

for packed in "$folder"/*/image.gz; do
  name=$(basename "$(dirname "$packed")")
  gunzip -c "$packed" >"$image" 2>/dev/null || continue
  images=$((images + 1)) bad=
  agrees >>"$WORK/differ" || true
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
cut -d: -f1 "$WORK/differ" | sort >"$WORK/differing"
while read -r one; do fail "$(grep "^$one:" "$WORK/differ")"; done < <(comm -23 "$WORK/differing" "$WORK/excepted")
while read -r one; do fail "$one: is no exception any more"; done < <(comm -13 "$WORK/differing" "$WORK/excepted")
[ -z "${DIFFERENCES:-}" ] || cp "$WORK/differ" "$DIFFERENCES"
say "$(wc -l <"$WORK/differing") left to e2fsck"
say "$images images, $written of them written to"
summary e2fsprogs-images
