#!/usr/bin/env bash
# A volume in a bucket that is far away: versitygw on this machine, behind a line that makes each request 20 ms later
# and lets 100 MB/s through in all (scripts/bench/proxy.rs). Prints, as tables in Markdown:
#   durable creates and 1 KiB appends over NFS with 256 requests outstanding, beside what one PUT at a time would
#   allow (256 ÷ the time of a PUT, measured in the same run: of one alone, and of those that the load made), and how
#   many PUTs they took;
#   sequential writing and reading through a mount, beside the line's limit;
#   a tree of small files unpacked through a mount, beside s3fs and rclone mount.
#
#   scripts/bench-bucket.sh     DELAY_MS=20 MB_PER_S=100 OUTSTANDING=256 OPS=100 MIB=512 choose other sizes;
#                               PEERS="s3fs rclone" which peers
#
# NFSLOAD=PATH is a load generator as in bench-nfs.sh; without it, it is `cairn bench`, a connection for each request.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh
. scripts/conformance/bucket.sh

DELAY_MS=${DELAY_MS:-20} MB_PER_S=${MB_PER_S:-100} OUTSTANDING=${OUTSTANDING:-256} OPS=${OPS:-100} MIB=${MIB:-512}
PEERS=${PEERS-s3fs rclone}
NFSLOAD=${NFSLOAD:-}
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1

main() {
  is_root || die "make bench-bucket mounts volumes: it needs root"
  make_work bench-bucket
  RESULTS=$WORK/results; : >"$RESULTS"
  build_cairn
  bucket_server versitygw || die "versitygw is needed"
  start_line
  export AWS_ENDPOINT_URL=http://127.0.0.1:$LINE_PORT
  put_time
  durable_requests
  sequential
  local peer
  small_files cairn
  for peer in $PEERS; do have "$peer" && small_files "$peer" || say "left out: $peer is not here"; done
  print_tables
}

note() { say "   $1 $2 $3"; echo "$1 $2 $3" >>"$RESULTS"; }
value() { awk -v a="$1" -v b="$2" '$1 == a && $2 == b {print $3}' "$RESULTS"; }
secs() { python3 -c 'import subprocess, sys, time
t = time.time(); subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); print(f"{time.time() - t:.3f}")' "$@"; }
a_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_line() {
  rustc -O --edition 2024 scripts/bench/proxy.rs -o "$WORK/proxy" || die "the line cannot be built"
  LINE_PORT=$(a_port)
  "$WORK/proxy" "$LINE_PORT" "$S3_PORT" "$DELAY_MS" "$MB_PER_S" & SERVERS+=("$!")
  sleep 0.5
}

# What one PUT takes on the line, one at a time over one connection, of as many bytes as a log object has here. Each
# carries its sum, without which the server refuses it, and sends its body without asking first.
put_time() {
  head -c 65536 /dev/urandom >"$WORK/object"
  local i urls=() sum; sum=$(sha256sum "$WORK/object" | cut -d' ' -f1)
  for ((i = 0; i < 20; i++)); do urls+=(-T "$WORK/object" "$AWS_ENDPOINT_URL/bkt/probe-$i" -o /dev/null); done
  curl -s -w '%{http_code} %{time_total}\n' --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H "x-amz-content-sha256: $sum" -H 'Expect:' "${urls[@]}" >"$WORK/puts"
  ! grep -qv '^200' "$WORK/puts" || die "a PUT is refused: $(grep -v '^200' "$WORK/puts" | head -n 1)"
  note put milliseconds "$(awk '{print $2}' "$WORK/puts" | sort -n | awk '{a[NR] = $1} END {printf "%.1f", 1000 * a[int((NR + 1) / 2)]}')"
}

# The server's counter of that name.
counter() { curl -s "http://127.0.0.1:$HTTP_PORT/metrics" | awk -v n="$1" '$1 ~ "^" n "({|$)" {s += $2} END {printf "%d", s}'; }

durable_requests() {
  local port url=s3://bkt/nfs phase before
  port=$(a_port); HTTP_PORT=$(a_port)
  "$CAIRN" mkfs "$url" --size 16G >/dev/null || die "mkfs $url"
  serve "$WORK/cairn.log" "$url" --nfs "127.0.0.1:$port" --http "127.0.0.1:$HTTP_PORT" --commit sync \
    --export '/=127.0.0.0/8,rw,no_root_squash,insecure' || die "it cannot be served"
  before=$(counter cairn_bucket_put_requests_total)
  if [ -n "$NFSLOAD" ]; then
    "$NFSLOAD" 127.0.0.1 "$port" "$port" / -t 4 -q $((OUTSTANDING / 4)) -n "$OPS" -p create,append >"$WORK/load" 2>&1
  else
    # A server takes 256 connections of one address; the benchmark has one besides.
    "$CAIRN" bench operations "nfs://127.0.0.1:$port/?mountport=$port" --threads $((OUTSTANDING < 250 ? OUTSTANDING : 250)) --count "$OPS" >"$WORK/load" 2>&1
  fi
  for phase in create append; do note "$phase" rate "$(awk -v p="$phase" '$1 == p {print int($3 == "operations" ? $6 : $4)}' "$WORK/load")"; done
  note requests put_ms "$(awk -v us="$(counter cairn_bucket_put_micros)" 'BEGIN {printf "%.1f", us / 1000}')"
  note requests puts "$(($(counter cairn_bucket_put_requests_total) - before))"
  note requests durable "$(counter cairn_nfs_durable_requests_total)"
  stop
}

sequential() {
  "$CAIRN" mkfs s3://bkt/sequential --size 16G >/dev/null && serve_at "$WORK/seq" s3://bkt/sequential || die "it cannot be served"
  # Zeros would be made shorter, and not fill the line.
  openssl enc -aes-128-ctr -pass pass:x -nosalt -pbkdf2 </dev/zero 2>/dev/null | head -c "$((MIB << 20))" >"$WORK/noise"
  note sequential write "$(secs dd if="$WORK/noise" of="$WORK/seq/file" bs=1M conv=fsync status=none)"
  release "$WORK/seq"; wait "$SERVER"
  serve_at "$WORK/seq" s3://bkt/sequential || die "it cannot be served again"
  note sequential read "$(secs dd if="$WORK/seq/file" of=/dev/null bs=1M status=none)"
  release "$WORK/seq"; wait "$SERVER"
}

# Our own sources, as a tree of some hundred small files, unpacked and made durable; then each of 50 files of 1 KiB
# made durable by itself.
small_files() {
  local dir=$WORK/$1
  mkdir -p "$dir" "$WORK/cache-$1"; MOUNTS+=("$dir")
  "mount_$1" "$dir" || { say "left out: $1 does not mount"; return; }
  git archive HEAD crates/ufs crates/ext crates/nfs >"$WORK/tree.tar"
  note "$1" untar "$(secs python3 -c 'import os, subprocess, sys
tar, root = sys.argv[1:]
subprocess.run(["tar", "xf", tar, "-C", root], check=True)
for d, _, files in os.walk(root):
    for f in files:
        fd = os.open(os.path.join(d, f), os.O_RDONLY); os.fsync(fd); os.close(fd)' "$WORK/tree.tar" "$dir")"
  note "$1" fsyncs "$(secs python3 -c 'import os, sys
for i in range(50):
    f = os.open(f"{sys.argv[1]}/f{i}", os.O_CREAT | os.O_WRONLY); os.write(f, b"x" * 1024); os.fsync(f); os.close(f)' "$dir")"
  release "$dir"; wait "$PEER" 2>/dev/null
}
mount_cairn() { "$CAIRN" mkfs s3://bkt/small --size 16G >/dev/null && serve_at "$1" s3://bkt/small && PEER=$SERVER; }
mount_s3fs() {
  echo "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$WORK/s3fs-key"; chmod 600 "$WORK/s3fs-key"; mkdir -p "$WORK/s3/s3fs"
  s3fs s3fs "$1" -f -o "passwd_file=$WORK/s3fs-key,url=$AWS_ENDPOINT_URL,use_path_request_style" >"$WORK/s3fs.log" 2>&1 & PEER=$!
  mounted "$1"
}
mount_rclone() {
  mkdir -p "$WORK/s3/rclone"
  env -u AWS_CA_BUNDLE rclone mount ":s3,provider=Other,env_auth=true,endpoint='$AWS_ENDPOINT_URL':rclone" "$1" --vfs-cache-mode writes \
    --cache-dir "$WORK/cache-rclone" --vfs-write-back 0s >"$WORK/rclone.log" 2>&1 & PEER=$!
  mounted "$1"
}
mounted() { SERVERS+=("$PEER"); local _; for _ in $(seq 100); do mountpoint -q "$1" && return 0; sleep 0.1; done; return 1; }

print_tables() {
  local phase
  local put bound loaded
  put=$(value put milliseconds); bound=$(awk -v p="$put" -v n="$OUTSTANDING" 'BEGIN {printf "%d", n * 1000 / p}')
  loaded=$(awk -v p="$(value requests put_ms)" -v n="$OUTSTANDING" 'BEGIN {printf "%d", n * 1000 / p}')
  say ""
  say "Each request $DELAY_MS ms later, $MB_PER_S MB/s in all; a PUT of 64 KiB takes $put ms; $(nproc) processors."
  say ""
  say "| $OUTSTANDING durable requests outstanding | a second | of $OUTSTANDING ÷ the time of a PUT alone ($bound) | of those under this load ($loaded) |"
  say "|---|--:|--:|--:|"
  for phase in create append; do
    awk -v p="$phase" -v r="$(value $phase rate)" -v b="$bound" -v l="$loaded" \
      'BEGIN {printf "| %s | %d | %.2f | %.2f |\n", p, r, r / b, r / l}'
  done
  say ""
  say "$(value requests durable) durable requests took $(value requests puts) PUTs, of $(value requests put_ms) ms each in this run."
  say ""
  say "| $MIB MiB | MB/s | of the line's $MB_PER_S |"
  say "|---|--:|--:|"
  for phase in write read; do
    awk -v p="$phase" -v s="$(value sequential $phase)" -v m="$MIB" -v l="$MB_PER_S" \
      'BEGIN {r = m * 1.048576 / s; printf "| %s | %.1f | %.2f |\n", p, r, r / l}'
  done
  say ""
  say "| | a tree unpacked, s | 50 files of 1 KiB, each fsynced, s |"
  say "|---|--:|--:|"
  for phase in cairn $PEERS; do
    [ -z "$(value "$phase" untar)" ] || say "| $phase | $(value "$phase" untar) | $(value "$phase" fsyncs) |"
  done
}

main
write_figures bench-bucket
