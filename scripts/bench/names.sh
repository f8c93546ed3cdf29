# Creating, removing and PostMark on emulated disks: what is made durable together at the end, by one caller and by
# many, each in a directory of its own. Nobody waits for each operation, so this is what each mode costs where most
# programs use it. Prints, as a table in Markdown, operations a second up to the end of the sync that follows.
# shellcheck shell=bash

NAMES_PEERS=${NAMES_PEERS-ext3:ordered ext3:writeback ordered unified soft-updates lfs}
NAMES_FILES=${NAMES_FILES:-4000}

measure_names() {
  local model=$1 n=$2 peer=$3 dir=$WORK/mnt
  mkdir -p "$dir"
  start_disk "$model"
  if mount_peer "$peer" "$dir"; then
    say "$model $n $peer $(names_create "$dir" "$n") $(names_remove "$dir" "$n") $(names_postmark "$dir" "$n")" |
      tee -a "$NAMES"
    unmount_peer "$peer" "$dir"
  fi
  stop_disk
}

# rate OPERATIONS COMMAND…: operations a second, the sync after it included.
rate() {
  local operations=$1 begun=$EPOCHREALTIME; shift
  "$@" >/dev/null || { say 0; return; }
  awk -v n="$operations" -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {print int(n / (b - a))}'
}

names_create() { rate "$NAMES_FILES" names_work "$1" "$2" create; }
names_remove() { rate "$NAMES_FILES" names_work "$1" "$2" remove; }
names_postmark() { rate "$NAMES_FILES" names_work "$1" "$2" postmark; }

# names_work DIR CALLERS WHAT: so many processes, all files between them, and a sync at the end.
names_work() {
  perl -MFcntl -MIO::Handle -e 'my ($top, $callers, $what, $all) = @ARGV;
    my $each = int($all / $callers); my $block = "x" x 512;
    sub put { my ($how, $name, $len) = @_; open my $f, $how, $name or die "$name: $!";
      while ($len > 0) { my $k = $len < 512 ? $len : 512; syswrite($f, $block, $k) == $k or die "$name: $!"; $len -= $k }
      close $f or die "$name: $!" }
    my %do = (
      create => sub { put(">", "n$_", 1024) for 1 .. $each },
      remove => sub { unlink "n$_" or die "n$_: $!" for 1 .. $each },
      # A pool of a quarter as many files as there are transactions.
      postmark => sub { my ($next, @live) = (0);
        my $new = sub { put(">", "f$next", 500 + int rand 9270); push @live, $next++ };
        $new->() for 1 .. $each / 4 + 1;
        for (1 .. $each) {
          my $name = "f" . $live[rand @live];
          if (rand 2 < 1) { open my $f, "<", $name or die "$name: $!"; 1 while sysread $f, my $in, 512 }
          else { put(">>", $name, 500 + int rand 3000) }
          if (rand 2 < 1 || @live < 2) { $new->() }
          else { my $k = int rand @live; unlink "f$live[$k]" or die "$!"; $live[$k] = $live[-1]; pop @live }
        } });
    my @children = map { my $n = $_; my $pid = fork // die "fork: $!";
      unless ($pid) { srand $n; mkdir "$top/d$n"; chdir "$top/d$n" or die "$!"; $do{$what}->();
        # Over FUSE sync(2) ends before anything is durable; fsync does not.
        sysopen my $here, ".", O_RDONLY or die "$!"; $here->sync or die "fsync: $!"; exit 0 } $pid } 1 .. $callers;
    my $bad = 0; for (@children) { waitpid $_, 0; $bad ||= $? } exit($bad ? 1 : 0)' "$1" "$2" "$3" "$NAMES_FILES" &&
    sync -f "$1"
}

print_names() {
  say ""
  say "$NAMES_FILES files of 1 KiB created and removed, and as many transactions of PostMark; a sync at the end of each."
  say ""
  say "| disk | callers | mode or file system | creates/s | removes/s | PostMark, transactions/s |"
  say "|---|--:|---|--:|--:|--:|"
  awk '{printf "| %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6}' "$NAMES"
}
