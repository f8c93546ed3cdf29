# What is measured. Each bench_NAME runs on the peers that it makes sense for and notes
# "workload peer value" lines; a value is a rate, more is better, unless the table says otherwise.
# shellcheck shell=bash

ROUNDS=${ROUNDS:-3}
describe() {
  case $1 in
    small) say "fs_mark, 10,000 files of 1 KiB, two threads, 20 folders (files/s)" ;;
    postmark) say "PostMark, 5,000 files, 20,000 transactions (transactions/s)" ;;
    append) say "64 writers of 1 KiB, no fsync (writes/s)" ;;
    appendsync) say "64 writers of 1 KiB, each followed by fsync (writes/s)" ;;
    seqwrite) say "2 GiB written in 1 MiB pieces, and one fsync (MiB/s)" ;;
    seqread) say "the same read back, caches empty (MiB/s)" ;;
    million) say "a folder of 1,000,000 files: rate of the first and of the last tenth (files/s)" ;;
    stat) say "stat of 20,000 cached files: bytes read from the disk" ;;
    ext4) say "the profiles ext3 and ext4 in the mode by default, beside kernel ext4 and fuse2fs" ;;
    daily) say "cp -a, tar x, git clone and rm -r of $DAILY_FILES files (ms), mail files in 512-byte writes (transactions/s)" ;;
    memory) say "10 GiB written with --cache 256M: most memory ever used (MiB)" ;;
  esac
}

note() { say "   $2: $3"; echo "$1 $2 $3" >>"$RESULTS"; }
# Where peers take turns, round by round: `keep WORKLOAD PEER VALUE` in each round, `note_medians` at the end. What one
# round has of the machine's other work falls on all of them, and a single bad round counts for nobody.
declare -A KEPT=()
keep() { say "   $2: $1 $3"; KEPT["$1 $2"]+=" $3"; }
note_medians() {
  local key
  # shellcheck disable=SC2086
  while read -r key; do
    note "${key% *}" "${key#* }" "$(median ${KEPT[$key]})"
  done < <(printf '%s\n' "${!KEPT[@]}" | sort)
  KEPT=()
}
# Every cairn does; of the peers those that this machine has.
takes_part() { case $1 in cairn-[!d]*) true ;; *) has "$1" ;; esac; }
mean() { printf '%s\n' "$@" | awk '{sum += $1} END {print int(sum / NR)}'; }
median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }

# on_each WORKLOAD FUNCTION PEER…: a fresh volume each, ROUNDS runs of `FUNCTION DIR ROUND`, the median.
on_each() {
  local workload=$1 run=$2 peer values round; shift 2
  for peer in "$@"; do
    has "$peer" && start "$peer" || continue
    values=(); for ((round = 1; round <= ROUNDS; round++)); do values+=("$("$run" "$WORK/$peer" "$round")"); done
    stop_peer "$peer"; rm -f "$WORK/$peer.img"
    note "$workload" "$peer" "$(median "${values[@]}")"
  done
}

bench_small() { on_each small run_small nothing cairn nothing-dev cairn-dev fuse2fs ext2 ext4; }
# fs_mark takes no path of 40 bytes or more, so it runs inside the folder; its log stays outside.
run_small() {
  (cd "$1" && fs_mark -l "$WORK/fs_mark" -d "round$2" -n 10000 -s 1024 -S 0 -t 2 -D 20 -L 1 2>/dev/null) |
    awk 'NF > 4 && $1 ~ /^[0-9]+$/ {n = $4} END {print int(n)}'
}

bench_postmark() { ROUNDS=1 on_each postmark run_postmark cairn cairn-dev fuse2fs ext2 ext4; }
run_postmark() {
  local begun=$EPOCHREALTIME
  printf 'set location %s\nset number 5000\nset transactions 20000\nset size 500 9770\nrun\nquit\n' "$1" | postmark >"$1.postmark"
  grep -q 'transactions' "$1.postmark" || { say 0; return; }
  awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {print int(20000 / (b - a))}'
}

bench_append() { on_each append run_append nothing cairn nothing-dev cairn-dev fuse2fs ext2 ext4; }
run_append() { run_fio "$1" iops --rw=write --bs=1k --size=4m --numjobs=64 --runtime=5 --time_based --group_reporting; }
bench_appendsync() { on_each appendsync run_appendsync nothing cairn nothing-dev cairn-dev ext2 ext4; }
run_appendsync() { run_fio "$1" iops --rw=write --bs=1k --size=4m --fsync=1 --numjobs=64 --runtime=5 --time_based --group_reporting; }

# run_fio DIR iops|bw OPTIONS: fio's terse output has read figures in fields 7 and 8, write in 48 and 49.
run_fio() {
  local dir=$1 what=$2 out; shift 2
  out=$(timeout 300 fio --name=bench --directory="$dir" --output-format=terse "$@" 2>/dev/null | grep '^3;' | head -n 1)
  awk -F ';' -v what="$what" '{print int(what == "iops" ? $8 + $49 : ($7 + $48) / 1024)}' <<<"$out"
}

# The peers take turns, an even number of times, on one image that is written once before; every other round the
# other way round, because memory that the machine has just used is faster than memory that it has not. So the mean
# counts, and the single values are told.
bench_seqwrite() {
  local peer round order=(cairn cairn-dev fuse2fs ext2 ext4) WRITTEN=$WORK/written
  local -A wrote=() got=()
  dd if=/dev/zero of="$WRITTEN" bs=1M count=6144 status=none || { say "   no room for 6 GiB"; return; }
  for ((round = 1; round <= (ROUNDS + 1) / 2 * 2; round++)); do
    [ $((round % 2)) = 1 ] || order=(ext4 ext2 fuse2fs cairn-dev cairn)
    for peer in "${order[@]}"; do
      drop_caches
      has "$peer" && start "$peer" || continue
      wrote[$peer]+=" $(run_fio "$WORK/$peer" bw --rw=write --bs=1m --size=2g --end_fsync=1)"
      stop_peer "$peer"; drop_caches
      again "$peer" || continue
      got[$peer]+=" $(run_fio "$WORK/$peer" bw --rw=read --bs=1m --size=2g)"
      stop_peer "$peer"; rm -f "$WORK/$peer.img"
    done
    order=(cairn cairn-dev fuse2fs ext2 ext4)
  done
  for peer in cairn cairn-dev fuse2fs ext2 ext4; do
    [ -n "${wrote[$peer]:-}" ] || continue
    say "   $peer: written${wrote[$peer]}, read${got[$peer]:-}"
    # shellcheck disable=SC2086
    { note seqwrite "$peer" "$(mean ${wrote[$peer]})"; note seqread "$peer" "$(mean ${got[$peer]:-0})"; }
  done
  rm -f "$WRITTEN"
}
# Measured together with seqwrite, which leaves the file to read.
bench_seqread() { [[ " ${WANTED[*]} " == *" seqwrite "* ]] || bench_seqwrite; }

bench_million() {
  local peer out
  for peer in cairn ext4; do
    # The inodes have to suffice; an ext2 without an index would need hours, so it is not asked.
    has "$peer" && start "$peer" || continue
    read -ra out <<<"$(run_million "$WORK/$peer" "${MILLION:-1000000}")"
    stop_peer "$peer"; rm -f "$WORK/$peer.img"
    note million-first "$peer" "${out[0]:-0}"; note million-last "$peer" "${out[1]:-0}"
  done
}
run_million() {
  perl -MTime::HiRes=time -e 'my ($d, $n) = @ARGV; mkdir "$d/million" or die; my $t = time; my @rate;
    for my $i (1 .. $n) {
      open my $f, ">", sprintf("%s/million/file-%07d", $d, $i) or die "file $i: $!";
      close $f;
      if ($i % ($n / 10) == 0) { my $now = time; push @rate, int($n / 10 / ($now - $t)); $t = $now }
    }
    print "$rate[0] $rate[-1]\n"' "$1" "$2"
}

bench_stat() {
  start cairn || return
  run_small "$WORK/cairn" 1 >/dev/null
  drop_dentries
  local before after
  before=$(disk_reads "$SERVER"); find "$WORK/cairn/round1" -type f -printf '%s\n' | grep -c . >"$WORK/stat.count"; after=$(disk_reads "$SERVER")
  [ "$(cat "$WORK/stat.count")" = 20000 ] || say "   only $(cat "$WORK/stat.count") files were there"
  note stat cairn $((after - before))
  stop_peer cairn; rm -f "$WORK/cairn.img"
}
# The kernel's copies of names and attributes go, so that every stat has to ask the server.
drop_dentries() { echo 2 >/proc/sys/vm/drop_caches; }
disk_reads() { awk '$1 == "read_bytes:" {print $2}' "/proc/$1/io"; }

bench_memory() {
  start cairn --cache 256M || return
  local i
  for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/zero of="$WORK/cairn/file$i" bs=1M count=1024 status=none || { say "   cannot write 10 GiB"; break; }; done
  note memory cairn "$(awk '$1 == "VmHWM:" {print int($2 / 1024)}' "/proc/$SERVER/status")"
  stop_peer cairn; rm -f "$WORK/cairn.img"
}
