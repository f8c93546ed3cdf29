# Volumes in a bucket: a folder, and two servers of the S3 protocol that have nothing in common (versitygw, built by
# Go, and moto, in Python; both pinned). A writer that is stopped is taken over, and when it wakes up it must not get
# a single write in; a writer that is killed loses nothing that it had acknowledged.
# shellcheck shell=bash

VERSITYGW=v1.8.0
MOTO=5.2.5

stage_bucket() {
  is_root || have fusermount3 || { skip "bucket: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  [ -c /dev/fuse ] || { skip "bucket: there is no /dev/fuse"; return; }
  bucket_in file "file://$WORK/bucket-folder"
  mkdir -p "$WORK/bucket-pool"; bucket_pool file "file://$WORK/bucket-pool/"
  local rounds=${BUCKET_ROUNDS:-$([ -n "$QUICK" ] && echo 4 || echo 40)}
  bucket_rounds file "file://$WORK/bucket-rounds" "$rounds"
  [ -n "$QUICK" ] || bucket_clients file "file://$WORK/bucket-clients" "$rounds"
  local server
  for server in versitygw moto; do
    bucket_server "$server" || continue
    AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$S3_PORT \
      bucket_on "$server"
    kill -TERM "$S3_SERVER" 2>/dev/null; wait "$S3_SERVER" 2>/dev/null
  done
}

bucket_on() {
  bucket_in "$1" s3://bkt/volume; bucket_pool "$1" s3://bkt/pool/
  [ -z "$QUICK" ] || return 0
  bucket_suites "$1" s3://bkt/suites
  [ "$1" != versitygw ] || bucket_clients "$1" s3://bkt/clients "${BUCKET_ROUNDS:-20}"
}

# bucket_server NAME: starts it on a free port, with a bucket `bkt`; S3_PORT and S3_SERVER. Left out where it cannot
# be had.
bucket_server() {
  "get_$1" || return
  S3_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "start_$1" >"$WORK/s3-$1.log" 2>&1 &
  S3_SERVER=$!; SERVERS+=("$S3_SERVER")
  local i
  for ((i = 0; i < 300; i++)); do
    if (: <>"/dev/tcp/127.0.0.1/$S3_PORT") 2>/dev/null; then "fill_$1"; return; fi
    sleep 0.1
  done
  fail "bucket: $1 does not listen: $(tail -n 1 "$WORK/s3-$1.log")"; return 1
}

get_versitygw() {
  VERSITYGW_AT=$(command -v versitygw || echo "$TOOLS/versitygw-$VERSITYGW")
  [ ! -x "$VERSITYGW_AT" ] || return 0
  have go || { leave_out "bucket: versitygw needs Go, which is not here"; return 1; }
  GOBIN=$TOOLS/gobin timeout 300 go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" >"$WORK/go.log" 2>&1 \
    || { leave_out "bucket: versitygw cannot be built: $(tail -n 1 "$WORK/go.log")"; return 1; }
  mv "$TOOLS/gobin/versitygw" "$VERSITYGW_AT"
}
start_versitygw() {
  mkdir -p "$WORK/s3/bkt"
  ROOT_ACCESS_KEY=test ROOT_SECRET_KEY=testsecret exec "$VERSITYGW_AT" --port "127.0.0.1:$S3_PORT" posix "$WORK/s3"
}
fill_versitygw() { :; }

get_moto() {
  [ ! -x "$TOOLS/moto-$MOTO/bin/moto_server" ] || return 0
  { python3 -m venv "$TOOLS/moto-$MOTO" && timeout 300 "$TOOLS/moto-$MOTO/bin/pip" install --quiet "moto[s3]==$MOTO" flask flask-cors
  } >"$WORK/moto.log" 2>&1 && return 0
  rm -rf "$TOOLS/moto-$MOTO"
  leave_out "bucket: moto cannot be installed: $(tail -n 1 "$WORK/moto.log")"; return 1
}
start_moto() { exec "$TOOLS/moto-$MOTO/bin/moto_server" -H 127.0.0.1 -p "$S3_PORT"; }
fill_moto() {
  python3 -c 'import sys, urllib.request as u
u.urlopen(u.Request(sys.argv[1], method="PUT")).read()' "http://127.0.0.1:$S3_PORT/bkt"
}

bucket_in() {
  local name="bucket in $1" url=$2 a=$WORK/bucket-$1-a b=$WORK/bucket-$1-b c=$WORK/bucket-$1-c first second i
  check "$name: mkfs" "$CAIRN" mkfs "$url" --size 2G || return
  serve_at "$a" "$url" || { fail "$name: it cannot be served"; return; }
  first=$SERVER
  mkdir "$a/tree"; for ((i = 0; i < 50; i++)); do seq "$i" "$((i + 2000))" >"$a/tree/$i"; sync "$a/tree/$i"; done
  check "$name: a second writer is refused" bucket_refused "$url"
  kill -STOP "$first"
  serve_at "$b" --standby "$url" || { fail "$name: a stopped writer is not taken over"; kill -CONT "$first"; return; }
  second=$SERVER
  check "$name: what was synced is there after the takeover" bucket_tree "$b"
  seq 7 77 >"$b/second"; sync "$b/second"
  kill -CONT "$first"
  check "$name: the writer that wakes up gets no write in" bucket_late "$a"
  kill -KILL "$first"; wait "$first" 2>/dev/null; release "$a"
  kill -KILL "$second"; wait "$second" 2>/dev/null; release "$b"
  serve_at "$c" "$url" --takeover-after 1 || { fail "$name: a killed writer is not taken over"; return; }
  check "$name: nothing is lost with a killed writer" bucket_both "$c"
  kill -TERM "$SERVER"; wait "$SERVER"; release "$c"
  check "$name: fsck" "$CAIRN" fsck "$url"
  check "$name: export" "$CAIRN" lfs export "$url" "$c.img"
  check "$name: e2fsck of the export" fsck_clean "$c.img"
  rm -f "$c.img"
}

# Two servers divide the volumes of a pool; one is killed with all of its processes, and the other has them all.
bucket_pool() {
  local name="pool in $1" url=$2 v first second
  for v in a b c d; do
    check "$name: mkfs $v" "$CAIRN" mkfs "$url$v" --size 1G || return
    check "$name: put $v" "$CAIRN" put "$url$v" /etc/hostname / || return
  done
  pool_server "$url" "$WORK/pool-$1-first"; first=$SERVER
  pool_server "$url" "$WORK/pool-$1-second"; second=$SERVER
  check "$name: two servers have two volumes each" pool_spread "$url" 2 2
  kill -KILL -- "-$first"; wait "$first" 2>/dev/null
  check "$name: the other one has what a killed one had" pool_spread "$url" 4
  check "$name: the map has all of them" test "$("$CAIRN" pool autofs "$url" | wc -l)" = 4
  kill -TERM "$second"; wait "$second"
  for v in a b c d; do
    check "$name: fsck $v" "$CAIRN" fsck "$url$v"
    check "$name: what was in $v is there" pool_holds "$url$v"
  done
}
pool_server() {
  setsid "$CAIRN" serve "$1" --nfs 127.0.0.1:0 --takeover-after 2 --cache 32M >"$2.log" 2>&1 &
  SERVER=$!; SERVERS+=("$SERVER")
}
# pool_spread URL N…: within a minute the servers that are alive have so many volumes, and all are served.
pool_spread() {
  local url=$1 i; shift
  for ((i = 0; i < 60; i++)); do
    "$CAIRN" pool status "$url" --json | python3 -c 'import json, sys
all = json.load(sys.stdin)
serving = [v["server"] for v in all["volumes"] if v["state"] == "serving"]
counts = sorted(serving.count(s) for s in set(serving))
sys.exit(counts != [int(n) for n in sys.argv[1:]])' "$@" && return
    sleep 1
  done
  "$CAIRN" pool status "$url"; return 1
}
pool_holds() { "$CAIRN" cat "$1" /hostname | cmp - /etc/hostname; }

# Two servers in turn, and a client that notes what was acknowledged: in each round the one that serves is killed, or
# stopped and woken up when the other one has taken over. Nothing noted may be lost, and service is back within 10 s.
bucket_rounds() {
  local name="bucket in $1: $3 rounds" url=$2 rounds=$3 r now=0 next first second load begun took longest=0
  local acked=$WORK/bucket-acked; : >"$acked"
  check "$name: mkfs" "$CAIRN" mkfs "$url" --size 2G || return
  serve_at "$WORK/bucket-0" "$url" --takeover-after 1 || { fail "$name: it cannot be served"; return; }
  first=$SERVER
  for ((r = 0; r < rounds; r++)); do
    next=$((1 - now)); release "$WORK/bucket-$next"; mkdir -p "$WORK/bucket-$next"; MOUNTS+=("$WORK/bucket-$next")
    "$CAIRN" serve --standby "$url" --takeover-after 1 --no-nfs --mount "$WORK/bucket-$next" >"$WORK/bucket-$next.log" 2>&1 &
    second=$!; SERVERS+=("$second")
    bucket_load "$WORK/bucket-$now" "$r" "$acked" & load=$!
    sleep 0.$((r * 7 % 9 + 1))
    if [ $((r % 2)) = 0 ]; then kill -KILL "$first"; else kill -STOP "$first"; fi
    begun=$(date +%s%N)
    await_ready "$WORK/bucket-$next.log" "$second" || { fail "$name: round $r: no takeover"; kill -KILL "$first"; wait "$load"; return; }
    took=$((($(date +%s%N) - begun) / 1000000)); [ "$took" -le "$longest" ] || longest=$took
    kill -CONT "$first" 2>/dev/null; sleep 0.3
    kill -KILL "$first" 2>/dev/null; wait "$first" 2>/dev/null; release "$WORK/bucket-$now"; wait "$load"
    now=$next first=$second
  done
  check "$name: $(wc -l <"$acked") acknowledged files are there" bucket_acked "$WORK/bucket-$now" "$acked"
  kill -TERM "$first"; wait "$first"; release "$WORK/bucket-$now"
  check "$name: fsck" "$CAIRN" fsck "$url"
  check "$name: service was back within $longest ms, 10 s are allowed" test "$longest" -lt 10000
}
bucket_load() {
  local i
  for ((i = 0; i < 10000; i++)); do
    echo "file $i of round $2" 2>/dev/null >"$1/$2-$i" && sync "$1/$2-$i" 2>/dev/null || return 0
    echo "$i $2" >>"$3"
  done
}
bucket_acked() {
  local i r
  [ -s "$2" ] || { say "nothing was acknowledged"; return 1; }
  while read -r i r; do echo "file $i of round $r" | cmp - "$1/$r-$i" || return 1; done <"$2"
}

# The same with clients over NFS, which repeat what they saw no answer to (bucket_rounds.py): back within 2 s after a
# kill with --takeover-after 1, and within 10 s at default settings; nothing lost, nothing done twice.
bucket_clients() {
  local name="bucket in $1: NFS clients" url=$2 rounds=$3 after limit
  for after in 1 5; do
    limit=$((after * 2)); [ "$after" = 1 ] || rounds=$(((rounds + 3) / 4))
    check "$name: mkfs" "$CAIRN" mkfs "$url-$after" --size 2G || return
    check "$name, $rounds rounds of kills, back within $limit s" \
      scripts/conformance/bucket_rounds.py "$CAIRN" "$url-$after" "$rounds" "$after" "$limit"
    check "$name: fsck" "$CAIRN" fsck "$url-$after"
  done
}

# Third-party suites on a volume in a bucket: pjdfstest beside the list of what kernel ext2 passes, where that was made
# in this run, fsx, and a tree of sources. Fewer than on a disk.
bucket_suites() {
  local name="bucket in $1" url=$2 mnt=$WORK/on-$1 not_ok n # a short path: the name of a socket has 107 bytes
  check "$name: mkfs" "$CAIRN" mkfs "$url" --size 4G || return
  serve_at "$mnt" "$url" || { fail "$name: it cannot be served"; return; }
  check "$name: cp -a of the sources" cp -a "$ROOT/crates" "$mnt/tree"
  sync "$mnt/tree"
  check "$name: diff -r" diff -r --no-dereference "$ROOT/crates" "$mnt/tree"
  if is_root; then
    install_suites
    for ((n = 1; n <= 8; n++)); do
      check "$name: fsx, 1000 operations, seed $n" "$TOOLS/bin/fsx" -N 1000 -S "$n" -P "$WORK" "$mnt/file" || break
      rm -f "$mnt/file"
    done
    [ -s "$WORK/pjdfstest.toml" ] || { . scripts/conformance/pjdfstest.sh; write_pjdfstest_config; mkdir -p "$WORK/second"; }
    [ -s "$WORK/pjd.wanted" ] || pjdfstest_referee
    if run_pjdfstest "$mnt" "$WORK/pjd.$1" && [ -s "$WORK/pjd.wanted" ]; then
      awk '$2 == "ok" {print $1}' "$WORK/pjd.$1" >"$WORK/pjd.passed"
      grep -v '^#' scripts/pjdfstest-exclusions.txt | awk 'NF {print $1}' | sort >"$WORK/pjd.excluded"
      not_ok=$(comm -23 "$WORK/pjd.wanted" "$WORK/pjd.passed" | comm -23 - "$WORK/pjd.excluded")
      check "$name: pjdfstest, all $(wc -l <"$WORK/pjd.passed") that kernel ext2 passes: $not_ok" test -z "$not_ok"
    else
      fail "$name: pjdfstest does not run: $(tail -n 1 "$WORK/pjd.$1.log")"
    fi
  fi
  check "$name: clean close" stop
  check "$name: fsck after the suites" "$CAIRN" fsck "$url"
  serve_at "$mnt" "$url" || { fail "$name: it cannot be served again"; return; }
  check "$name: diff -r of what the bucket has" diff -r --no-dereference "$ROOT/crates" "$mnt/tree"
  check "$name: clean close" stop
}

bucket_refused() { ! "$CAIRN" put "$1" /etc/hostname / 2>"$WORK/refused" && grep -q 'in use' "$WORK/refused"; }
bucket_late() { ! (echo late >"$1/late" && sync "$1/late") 2>/dev/null; }
bucket_tree() {
  local i
  for ((i = 0; i < 50; i++)); do seq "$i" "$((i + 2000))" | cmp - "$1/tree/$i" || return 1; done
}
bucket_both() { bucket_tree "$1" && seq 7 77 | cmp - "$1/second" && [ ! -e "$1/late" ]; }
