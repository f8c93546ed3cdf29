# Every feature of the table in docs/ext4.md, on a volume that has it: written, only read, or refused by name, as the table
# says. What a line of advice takes away is taken away, and then the volume is written.
# shellcheck shell=bash

stage_ext4_features() {
  have mke2fs && have debugfs || { skip "features of ext4: mke2fs and debugfs make the volumes"; return; }
  local name word what
  echo contents >"$WORK/contents"
  while IFS='|' read -r _ name word what _; do
    name=${name// /} what=${what# }
    case $what in
      written*) feature "$name" written ;;
      "read only"*) feature "$name" read ;;
      refused*) feature "$name" refused ;;
    esac
  done < <(grep -E '^\| [^ ]+ \| (compat|incompat|ro_compat) \|' docs/ext4.md)
}

# A volume with the feature: by mke2fs if that makes such ones, else by a bit that debugfs sets.
feature_volume() {
  local with=$1; rm -f "$WORK/feature.img"; truncate -s 64M "$WORK/feature.img"
  case $1 in
    meta_bg) with=meta_bg,^resize_inode ;;
    uninit_bg) with=^metadata_csum,uninit_bg ;;
    project) with=project,quota ;;
    btree_dir) set -- FEATURE_R2 ;; # e2fsprogs knows no name for it
  esac
  mke2fs -q -F -t ext4 -O "$with" "$WORK/feature.img" >/dev/null 2>&1 && return
  mke2fs -q -F -t ext4 "$WORK/feature.img" >/dev/null 2>&1 &&
    debugfs -w -R "feature $1" "$WORK/feature.img" >/dev/null 2>&1
}

# feature NAME WHAT: what is promised of a volume that has it.
feature() {
  local name=$1 image=$WORK/feature.img told advice
  feature_volume "$name" || { fail "features: no volume with $name can be made"; return; }
  told=$("$CAIRN" put "$image" "$WORK/contents" / 2>&1)
  case $? in
    0) [ "$2" = written ] || { fail "features: $name is written, and the table says: $2"; return; }
       check "features: $name is written" fsck_clean "$image"; return ;;
  esac
  [ "$2" != written ] || { fail "features: $name is not written: $told"; return; }
  [[ $told == *$name* ]] || { fail "features: $name is not named: $told"; return; }
  if "$CAIRN" ls "$image" / >/dev/null 2>&1; then told="$told"' read'; else told="$told"' refused'; fi
  [ "${told##* }" = "$2" ] || { fail "features: $name is ${told##* }, and the table says: $2"; return; }
  pass "features: $name is $2"
  advice=$(grep -o 'tune2fs -O [^ ;,)]*\(,^[^ ;,)]*\)*' <<<"$told") || return
  # shellcheck disable=SC2086
  check "features: without $name" $advice "$image" &&
    check "features: without $name it is written" "$CAIRN" put "$image" "$WORK/contents" / && fsck_clean "$image"
}
