# Every day's work: a tree of sources copied, unpacked, cloned and removed, and mail files in 512-byte writes; in the
# default mode, `ordered`, `async` and `soft-updates`, beside a FUSE file system that does nothing, kernel ext4 and fuse2fs.
# shellcheck shell=bash

DAILY_FILES=${DAILY_FILES:-12000}
DAILY_TRANSACTIONS=${DAILY_TRANSACTIONS:-20000}
DAILY=(copy untar clone remove mail)
DAILY_PEERS=${DAILY_PEERS:-cairn-default cairn-ordered cairn-async cairn-async-ext3 cairn-soft nothing nothing-dev fuse2fs ext4}

# The peers take turns. In each round each has a fresh volume and does all of it there. Each step begins when what the
# one before has left to the background is done, for all peers: what that costs is told as processor time of the server.
# `soft-updates` needs a volume of ext3, and is held against `async` on one.
bench_daily() {
  local peer round
  make_tree || return
  for ((round = 1; round <= ROUNDS; round++)); do
    for peer in $DAILY_PEERS; do
      takes_part "$peer" && start "$peer" || continue
      daily_round "$peer" "$round"
      stop_peer "$peer"; rm -f "$WORK/$peer.img"
    done
  done
  note_medians
}
daily_round() {
  local step
  for step in "${DAILY[@]}"; do
    # What does nothing lists no directory and keeps no contents.
    case $1:$step in nothing*:clone | nothing*:remove) continue ;; esac
    keep "daily-$step" "$1" "$("daily_$step" "$WORK/$1" "$2")"
    settle "$1"
  done
  case $1 in cairn-*) keep daily-processor "$1" "$(processor_ms "$SERVER")" ;; esac
}
# All that is dirty is on the disk; of cairn, which hears nothing of sync(1), when it says so three times in a row (what
# was removed is given back behind that).
settle() {
  local _ clean=0
  sync
  case $1 in cairn-*) ;; *) return ;; esac
  for _ in $(seq 150); do
    if [ "$(dirty_bytes)" = 0 ]; then clean=$((clean + 1)); else clean=0; fi
    [ $clean -lt 3 ] || return 0
    sleep 0.1
  done
}
dirty_bytes() { "$CAIRN" stats --json | awk -F '[:,]' '/"cairn_dirty_bytes"/ {print $2 + 0}'; }
processor_ms() { awk -v tick="$(getconf CLK_TCK)" '{print int(($14 + $15) * 1000 / tick)}' "/proc/$1/stat"; }

# The machine's Python library, or what else it has of small files; as a folder, an archive and a repository.
make_tree() {
  local from tree=$WORK/tree
  from=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])' 2>/dev/null) || from=/usr/share
  mkdir -p "$tree"
  find "$from" /usr/include /usr/share -type f -size -256k 2>/dev/null | head -n "$DAILY_FILES" |
    tar cf - -T - 2>/dev/null | tar xf - -C "$tree"
  tar cf "$WORK/tree.tar" -C "$tree" .
  local git=(git -c user.name=bench -c user.email=bench@localhost --git-dir="$WORK/tree.git" --work-tree="$tree")
  { "${git[@]}" init -q && "${git[@]}" add -Af . && "${git[@]}" commit -qm tree; } 2>/dev/null ||
    { say "left out: git clone (no git)"; DAILY=(copy untar remove mail); }
  [ "$(find "$tree" -type f | wc -l)" -gt 100 ] || { say "   no files to copy"; return 1; }
}

# milliseconds COMMAND…: how long it takes; 0 if it fails.
milliseconds() {
  local begun=$EPOCHREALTIME
  "$@" >/dev/null 2>&1 || { say 0; return; }
  awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {print int((b - a) * 1000)}'
}
daily_copy() { milliseconds cp -a "$WORK/tree" "$1/copy$2"; }
daily_untar() { mkdir "$1/untar$2"; milliseconds tar xf "$WORK/tree.tar" -C "$1/untar$2"; }
daily_clone() { milliseconds git clone -q "file://$WORK/tree.git" "$1/clone$2"; }
daily_remove() { milliseconds rm -r "$1/copy$2"; }
# A pool of files; each transaction reads or appends to one, and creates or deletes one, in 512-byte writes.
daily_mail() {
  mkdir "$1/mail$2"
  perl -MTime::HiRes=time -e 'my ($dir, $n) = @ARGV; chdir $dir or die; srand 42;
    my ($block, $next, @live) = ("x" x 512, 0);
    my $put = sub { my ($how, $name, $len) = @_; open my $f, $how, $name or die "$name: $!";
      while ($len > 0) { my $k = $len < 512 ? $len : 512; syswrite($f, $block, $k) == $k or die; $len -= $k } close $f or die };
    my $create = sub { $put->(">", "f$next", 500 + int rand 9270); push @live, $next++ };
    $create->() for 1 .. $n / 4;
    my $begun = time;
    for (1 .. $n) {
      my $name = "f" . $live[rand @live];
      if (rand 2 < 1) { open my $f, "<", $name or die; 1 while sysread $f, my $in, 512 } else { $put->(">>", $name, 500 + int rand 3000) }
      if (rand 2 < 1) { $create->() } else { my $k = int rand @live; unlink "f$live[$k]" or die; $live[$k] = $live[-1]; pop @live }
    }
    print int($n / (time - $begun)), "\n"' "$1/mail$2" "$DAILY_TRANSACTIONS" || say 0
}
