# Volumes of ext4 that the kernel and we change in turns: random operations by each, after each turn contents as a model
# says, and e2fsck content. By matrix: sizes of blocks and inodes, features; --quick takes a few of them. TURNS_SEED=N takes
# other operations.
# shellcheck shell=bash

stage_ext4_turns() {
  is_root || { skip "ext4 in turns: a loop mount needs root"; return; }
  [ -c /dev/fuse ] || { skip "ext4 in turns: there is no /dev/fuse"; return; }
  have python3 || { skip "ext4 in turns: there is no python3"; return; }
  local block inode feature mode options who
  while read -r mode options; do
    # shellcheck disable=SC2086
    ext4_turns "$mode" $options
  done <<'L'
unified
ordered -b 1024
redo -O ^metadata_csum,uninit_bg
data -O metadata_csum_seed,orphan_file,large_dir
wasteless -O ^64bit,^flex_bg -I 128
selective -O meta_bg,^resize_inode -b 1024
unified -O ea_inode
L
  for block in 1024 4096; do for who in kernel us; do ext4_long_names "$block" "$who"; done; done
  ext4_hash_sign
  [ -z "$QUICK" ] || return
  for mode in ordered data redo; do
    for block in 1024 4096; do ext4_turns "$mode" -b "$block" -O ea_inode; done
  done
  # Not with inodes of 128 bytes: there Linux 6.18 by itself leaves counts of values that e2fsck complains about.
  ext4_turns unified -I 512 -O ea_inode,^metadata_csum
  for block in 1024 2048 4096; do for inode in 128 256; do
    for feature in ^metadata_csum ^64bit ^flex_bg ^dir_index orphan_file ^metadata_csum,uninit_bg ^extent,^64bit sparse_super2; do
      ext4_turns unified -b "$block" -I "$inode" -O "$feature"
    done
  done; done
}

# ext4_turns MODE OPTIONS-OF-MKE2FS…
ext4_turns() {
  local mode=$1 mnt image name turn turns=4 TURNS_LONG=; shift
  [[ $* != *ea_inode* ]] || TURNS_LONG=1
  mnt=$WORK/turns image=$WORK/turns.img name="ext4${*:+ $*}, mode $mode"
  [ -n "$QUICK" ] || turns=6
  rm -f "$image"; truncate -s 200M "$image"
  check "$name: mke2fs" mke2fs -q -F -t ext4 "$@" "$image" || return
  # Directories by each of the hashes in turn.
  TURNS_HASH=$(((${TURNS_HASH:-0} + 1) % 3))
  check "$name: tune2fs" tune2fs -E "hash_alg=$(set -- legacy half_md4 tea; shift $TURNS_HASH; echo "$1")" "$image" || return
  echo '{}' >"$WORK/turns.model"
  for turn in $(seq "$turns"); do
    if [ $((turn % 2)) = 1 ]; then
      kernel_mount "$mnt-k" "$image" ext4 user_xattr || { skip "$name: the kernel does not mount it"; return; }
      check "$name: the kernel's turn, $turn" turn "$mnt-k" "$turn" || { release "$mnt-k"; return; }
      release "$mnt-k"
    else
      serve_at "$mnt" "$image" --mode "$mode" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
      check "$name: our turn, $turn" turn "$mnt" "$turn" || { stop; return; }
      check "$name: clean close" stop || return
    fi
    check "$name: e2fsck after turn $turn" fsck_clean "$image" || return
  done
  rm -f "$image"
}

turn() { python3 scripts/conformance/turns.py "$1" "$WORK/turns.model" "$((${TURNS_SEED:-0} * 100 + $2))" 300 ${TURNS_LONG:+long}; }

# ext4_long_names BLOCK kernel|us: a directory of long names, of which we take away all or most; then Linux fills it with
# longer ones. It splits a leaf that has no gap, and takes it for damage if there are no two names to part.
ext4_long_names() {
  local mnt=$WORK/turns image=$WORK/turns.img every name
  for every in 0 3; do
    name="long names by $2, blocks of $1 bytes, we leave $([ $every = 0 ] && echo none || echo "one of $every")"
    rm -f "$image"; truncate -s 64M "$image"
    check "$name: mke2fs" mke2fs -q -F -t ext4 -b "$1" -N 12000 "$image" || return
    if [ "$2" = kernel ]; then
      kernel_mount "$mnt-k" "$image" ext4 || { skip "$name: the kernel does not mount it"; return; }
      make_names "$mnt-k/dir" 250 1500; release "$mnt-k"
    fi
    serve_at "$mnt" "$image" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
    [ "$2" = kernel ] || make_names "$mnt/dir" 250 1500
    check "$name: removal" perl -e 'chdir shift or die; opendir my $d, "."; my $n = 0;
      for (grep !/^\.\.?$/, sort readdir $d) { unlink or die "$!" unless $ARGV[0] && ++$n % $ARGV[0] == 0 }' "$mnt/dir" $every
    check "$name: clean close" stop || return
    kernel_mount "$mnt-k" "$image" ext4
    check "$name: the kernel fills it" make_names "$mnt-k/dir" 255 2500
    release "$mnt-k"
    check "$name: e2fsck" fsck_clean "$image" || return
  done
  rm -f "$image"
}
# A volume that does not say whether hashes take bytes as signed: who writes it first says so, and the other follows.
ext4_hash_sign() {
  local mnt=$WORK/turns image=$WORK/turns.img name="hashes of no sign"
  rm -f "$image"; truncate -s 64M "$image"
  check "$name: mke2fs" mke2fs -q -F -t ext4 -b 1024 "$image" || return
  check "$name: debugfs" debugfs -w -R 'set_super_value flags 0' "$image" || return
  serve_at "$mnt" "$image" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  mkdir "$mnt/dir"; for n in $(seq 400); do : >"$mnt/dir/ä-$n-é"; done
  check "$name: clean close" stop || return
  kernel_mount "$mnt-k" "$image" ext4 || { skip "$name: the kernel does not mount it"; return; }
  check "$name: the kernel finds every name" perl -e 'for (1 .. 400) { -e "$ARGV[0]/dir/ä-$_-é" or die "$_" }' "$mnt-k"
  release "$mnt-k"
  check "$name: e2fsck" fsck_clean "$image"
  rm -f "$image"
}

# make_names DIR LENGTH COUNT
make_names() {
  mkdir -p "$1" && perl -e 'chdir shift or die; my ($long, $n) = @ARGV;
    for (1 .. $n) { my $name = substr("$_" . chr(97 + $long % 26) x $long, 0, $long); open my $f, ">", $name or die "$name: $!" }' "$@"
}
