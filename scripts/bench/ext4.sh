# The ext4 profile beside the ext3 profile, both in the mode by default, kernel ext4 and fuse2fs: the everyday workloads,
# and what extents and hash-indexed directories are for. SMALL=1 tries the script with a hundredth of everything.
# shellcheck shell=bash

EXT4_PEERS=(cairn-ext3 cairn-ext4 fuse2fs ext4)

# The peers take turns. In each round each has a fresh volume and does all of it there; what takes long and hardly
# varies, four large files and a removed one, is done in every round too.
bench_ext4() {
  local peer round big=10240 names=${MILLION:-1000000}
  [ -z "${SMALL:-}" ] || { big=128; names=10000; }
  for ((round = 1; round <= ROUNDS; round++)); do
    for peer in "${EXT4_PEERS[@]}"; do
      takes_part "$peer" || continue
      # It needs minutes for what the others do in seconds: one round.
      [ "$peer:$round" = fuse2fs:1 ] || [ "$peer" != fuse2fs ] || continue
      start "$peer" || continue
      ext4_files "$peer"
      ext4_writers "$peer"
      ext4_delete "$peer" "$big"
      rm -f "$WORK/$peer.img"
    done
  done
  note_medians
  ext4_stat "$names"
  ext4_mount
}
ext4_files() {
  local step
  for step in small postmark; do keep "ext4-$step" "$1" "$("run_$step" "$WORK/$1" 1)"; done
  keep ext4-remove "$1" "$(milliseconds rm -r "$WORK/$1/round1")"
}

# 2 GiB by four writers at once, and how many pieces they lie in; read again with empty caches.
ext4_writers() {
  local peer=$1 size=512m
  [ -z "${SMALL:-}" ] || size=8m
  keep ext4-write "$peer" "$(run_fio "$WORK/$peer" bw --rw=write --bs=1m --size=$size --numjobs=4 --end_fsync=1 --group_reporting)"
  stop_peer "$peer"; drop_caches
  keep ext4-pieces "$peer" "$(for n in 0 1 2 3; do pieces "$WORK/$peer.img" "/bench.$n.0"; done | awk '{n += $1} END {print n}')"
  again "$peer" || return
  keep ext4-read "$peer" "$(run_fio "$WORK/$peer" bw --rw=read --bs=1m --size=$size --numjobs=4 --group_reporting)"
}

# Runs of blocks of a file, as debugfs sees it.
pieces() {
  debugfs -R "blocks $2" "$1" 2>/dev/null | tr ' ' '\n' | awk 'NF {if ($1 != last + 1) n++; last = $1} END {print n + 0}'
}

# A file of 10 GiB, durable, is removed, durably: while the kernel has its pages, which are dropped with it page by page,
# and once more when it has none, which leaves what the file system does.
ext4_delete() {
  local peer=$1 big=$2 file=$WORK/$1/big step
  rm -f "$WORK/$peer"/bench.*
  for step in ext4-delete ext4-delete-cold; do
    dd if=/dev/zero of="$file" bs=1M count="$big" conv=fsync status=none || { say "   $peer: no room for 10 GiB"; return; }
    [ $step = ext4-delete ] || drop_caches
    keep $step "$peer" "$(milliseconds remove_durably "$file" "$WORK/$peer")"
    [ "$peer" != fuse2fs ] || break
  done
  stop_peer "$peer"
}
remove_durably() { rm "$1" && sync "$2"; }

# A folder of a million names that the kernel has made: 10,000 of them, at random, with empty caches; and how many blocks
# each took.
ext4_stat() {
  local names=$1 image=$WORK/names.img dir=$WORK/names peer before
  has ext4 || return
  mkdir -p "$dir"; truncate -s "$ROOM" "$image"; mke2fs -q -F -t ext4 -N $((names + 1000)) "$image"
  kernel_mount "$dir" "$image" ext4 && run_million "$dir" "$names" >/dev/null; release "$dir"
  for peer in cairn-ext4 fuse2fs ext4; do
    has "$peer" || [ "$peer" = cairn-ext4 ] || continue
    rm -f "$WORK/$peer.img"; ln "$image" "$WORK/$peer.img"; drop_caches
    again "$peer" || continue
    [ "$peer" != cairn-ext4 ] || before=$(blocks_read)
    note ext4-stat "$peer" "$(stat_some "$WORK/$peer/million" "$names")"
    [ "$peer" != cairn-ext4 ] || note ext4-blocks "$peer" "$(($(blocks_read) - before))"
    stop_peer "$peer"; rm -f "$WORK/$peer.img"
  done
  rm -f "$image"
}
# 10,000 different names; each a second.
stat_some() {
  perl -MTime::HiRes=time -e 'my ($d, $n) = @ARGV; srand 7; my $t = time; my %seen; my $want = $n < 10000 ? $n / 2 : 10000;
    while (keys %seen < $want) { my $i = 1 + int rand $n; next if $seen{$i}++; stat sprintf("%s/file-%07d", $d, $i) or die "$i: $!" }
    print int($want / (time - $t)), "\n"' "$1" "$2"
}
blocks_read() { "$CAIRN" stats --json | awk -F '[:,]' '/"cairn_cache_misses_total"/ {print $2 + 0}'; }

# A sparse volume of 5 TiB with 1 KiB blocks, which are more than 2^32: opened, mounted, and the most memory for that.
ext4_mount() {
  local image=$WORK/cairn-ext4.img begun
  rm -f "$image"
  truncate -s 5T "$image" && mke2fs -q -F -t ext4 -b 1024 -O 64bit,^resize_inode,meta_bg -E nodiscard "$image" ||
    { say "   no volume of 5 TiB here"; return; }
  drop_caches
  begun=$EPOCHREALTIME
  again cairn-ext4 || return
  note ext4-mount cairn-ext4 "$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {print int((b - a) * 1000)}')"
  note ext4-memory cairn-ext4 "$(awk '$1 == "VmHWM:" {print int($2 / 1024)}' "/proc/$SERVER/status")"
  stop_peer cairn-ext4; rm -f "$image"
}

print_ext4() {
  grep -q '^ext4-' "$RESULTS" || return
  say ""
  awk '
    /^ext4-/ { v[$1, $2] = $3 }
    function cell(w, p) { return ((w, p) in v) ? v[w, p] : "–" }
    function row(w, name) {
      printf "| %s | %s | %s | %s | %s |\n", name, cell(w, "cairn-ext3"), cell(w, "cairn-ext4"), cell(w, "fuse2fs"), cell(w, "ext4")
    }
    END {
      print "| default mode | profile ext3 | profile ext4 | fuse2fs | kernel ext4 |"
      print "|---|--:|--:|--:|--:|"
      row("ext4-small", "10,000 small files, files/s"); row("ext4-postmark", "PostMark, transactions/s")
      row("ext4-remove", "rm -r of 20,000 files, ms"); row("ext4-write", "2 GiB by four writers, MiB/s")
      row("ext4-pieces", "pieces they lie in"); row("ext4-read", "the same read, MiB/s")
      row("ext4-delete", "rm of 10 GiB, ms")
      row("ext4-delete-cold", "the same, none of it in the page cache"); row("ext4-stat", "cold stat of 10,000 of a million, names/s")
      row("ext4-blocks", "blocks read for them"); row("ext4-mount", "mount of 5 TiB of 1 KiB blocks, ms")
      row("ext4-memory", "memory for that, MiB")
    }' "$RESULTS"
}
