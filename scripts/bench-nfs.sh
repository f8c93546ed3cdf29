#!/usr/bin/env bash
# How fast over NFSv3, beside whom: cairn in mode `sync`, which makes every change durable before it answers,
# and nfs-ganesha (FSAL_VFS) on a loop-mounted ext4: once as it comes, where a metadata change is not durable when
# it is answered, and once with ext4 mounted `dirsync,sync`, where it is. Two rounds of each, taking turns.
# Prints operations a second and the most memory each server used, as a table in Markdown. cairn's memory holds its
# cache of blocks (CACHE, 12M); Ganesha's is besides what the kernel caches for it, which no figure here counts.
#
#   NFSLOAD=PATH scripts/bench-nfs.sh     a load generator: NFSLOAD HOST NFSPORT MOUNTPORT EXPORT -t 4 -q 8 -n N -p PHASES
#
# Without NFSLOAD it is `cairn bench`. MODES="sync unified" measures further modes of cairn; OPS=500 operations a slot.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

PHASES=(mkdir create append lookup getattr read mix remove)
CONNECTIONS=4 IN_FLIGHT=8
OPS=${OPS:-500} CACHE=${CACHE:-12M}
NFSLOAD=${NFSLOAD:-}

main() {
  is_root || die "make bench-nfs mounts loop devices and starts servers: it needs root"
  # In memory where there is room: what is compared is servers, not what a disk does meanwhile.
  make_work bench-nfs
  RESULTS=$WORK/results; : >"$RESULTS"
  build_cairn
  [ -z "$NFSLOAD" ] || [ -x "$NFSLOAD" ] || die "NFSLOAD=$NFSLOAD is not a program"
  PEERS=(); local mode
  for mode in ${MODES:-sync}; do PEERS+=("cairn-$mode"); done
  if have ganesha.nfsd; then PEERS+=(ganesha ganesha-durable); start_rpcbind
  else say "left out: nfs-ganesha (Debian: nfs-ganesha nfs-ganesha-vfs rpcbind)"; fi
  local round peer
  for round in 1 2; do for peer in "${PEERS[@]}"; do
    # Flushing for every change takes it minutes: one round, and fewer operations.
    [ "$peer" = ganesha-durable ] && { [ $round = 1 ] || continue; }
    measure "$peer"
  done; done
  print_table
}

start_rpcbind() { pgrep -x rpcbind >/dev/null || { rpcbind -f >/dev/null 2>&1 & SERVERS+=($!); sleep 0.5; }; }
a_port() { echo $((20000 + RANDOM % 10000)); }

measure() {
  local peer=$1 port; port=$(a_port)
  case $peer in
    cairn-*) start_cairn "${peer#cairn-}" "$port" && load "$peer" "$port" "$port" / ;;
    ganesha) start_ganesha "$port" rw && load "$peer" "$port" $((port + 1)) "$WORK/export" ;;
    ganesha-durable) start_ganesha "$port" dirsync,sync && OPS=$((OPS / 5 + 1)) load "$peer" "$port" $((port + 1)) "$WORK/export" ;;
  esac
  [ -n "$NFSLOAD" ] || note_memory "$peer"
  kill -TERM "$SERVER" 2>/dev/null; wait "$SERVER" 2>/dev/null
  release "$WORK/export"; rm -f "$WORK/volume.img"
}
note_memory() { note "$1" memory "$(awk '$1 == "VmHWM:" {print int($2 / 1024)}' "/proc/$SERVER/status" 2>/dev/null)"; }
note() { [ -n "$3" ] && { say "   $1 $2 $3"; echo "$1 $2 $3" >>"$RESULTS"; }; }

start_cairn() {
  local unsafe=(); [ "$1" = async ] && unsafe=(--unsafe-async)
  # shellcheck disable=SC2046
  "$CAIRN" mkfs "$WORK/volume.img" --size 8G $(kind_for "$1") >/dev/null &&
    serve "$WORK/cairn.log" "$WORK/volume.img" --mode "$1" "${unsafe[@]}" --cache "$CACHE" --nfs "127.0.0.1:$2" \
      --export '/=127.0.0.0/8,rw,no_root_squash,insecure' || { say "cairn: $(tail -n 1 "$WORK/cairn.log")"; return 1; }
}

start_ganesha() {
  local port=$1 options=$2
  truncate -s 8G "$WORK/volume.img"; mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 "$WORK/volume.img"
  kernel_mount "$WORK/export" "$WORK/volume.img" ext4 "$options" || { say "the kernel does not mount ext4 on a loop device"; return 1; }
  cat >"$WORK/ganesha.conf" <<G
NFS_CORE_PARAM { NFS_Port=$port; MNT_Port=$((port + 1)); Rquota_Port=$((port + 2)); NLM_Port=$((port + 3));
  Enable_NLM=false; Enable_RQUOTA=false; Protocols=3; mount_path_pseudo=false; Bind_addr=127.0.0.1; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT { Export_Id=1; Path=$WORK/export; Pseudo=/export; Access_Type=RW; Squash=No_Root_Squash; SecType=sys;
  Protocols=3; Transports=TCP; FSAL { Name=VFS; } CLIENT { Clients=*; Access_Type=RW; Squash=No_Root_Squash; } }
G
  ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$WORK/ganesha.log" -p "$WORK/ganesha.pid" >/dev/null 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  local _; for _ in $(seq 100); do (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && { sleep 1; return 0; }; sleep 0.1; done
  say "ganesha does not answer: $(tail -n 1 "$WORK/ganesha.log")"; return 1
}

# load PEER PORT MOUNTPORT EXPORT: every phase, and a line if a reply was an error. What NFSLOAD does not know
# (lookup) comes from `cairn bench`, as a connection for each request in flight; the memory is that after NFSLOAD.
load() {
  local peer=$1 port=$2 mount=$3 export=$4 out=$WORK/load.out phase
  : >"$out"
  if [ -n "$NFSLOAD" ]; then
    local list; list=$(IFS=,; echo "${PHASES[*]}"); list=${list/lookup,/}
    "$NFSLOAD" 127.0.0.1 "$port" "$mount" "$export" -t $CONNECTIONS -q $IN_FLIGHT -n "$OPS" -p "$list" >"$out" 2>&1 ||
      say "   $peer: $(grep -v '^phase\|^conn' "$out" | tail -n 1)"
    note_memory "$peer"
  fi
  "$CAIRN" bench operations "nfs://127.0.0.1:$port$export?mountport=$mount" --threads $((CONNECTIONS * IN_FLIGHT)) \
    --count "$OPS" >"$out.all" 2>&1 || { say "   $peer: $(tail -n 1 "$out.all")"; return 0; }
  awk '$3 == "operations" {print $1, $2, $4, int($6), 0}' "$out.all" >>"$out"
  # Of a phase that both did, the first counts.
  for phase in "${PHASES[@]}"; do note "$peer" "$phase" "$(awk -v p="$phase" '$1 == p && $NF == 0 && !n++ {print int($4)}' "$out")"; done
}

print_table() {
  say ""
  say "Operations a second, $CONNECTIONS connections with $IN_FLIGHT requests in flight each, mean of two rounds; $(nproc) processors; cairn --cache $CACHE."
  say ""
  awk -v peers="${PEERS[*]}" -v phases="${PHASES[*]} memory" '
    { sum[$1, $2] += $3; n[$1, $2]++ }
    function mean(p, w) { return ((p, w) in n) ? sum[p, w] / n[p, w] : 0 }
    function cell(p, w) { return ((p, w) in n) ? sprintf("%d", mean(p, w)) : "–" }
    function ratio(a, b, w) { return (mean(a, w) && mean(b, w)) ? sprintf("%.2f", mean(a, w) / mean(b, w)) : "–" }
    END {
      np = split(peers, p, " "); nw = split(phases, w, " ")
      line = "|"; rule = "|---|"
      for (i = 1; i <= np; i++) { line = line " " p[i] " |"; rule = rule "--:|" }
      print "| phase " line " " p[1] " to ganesha | to ganesha-durable |"; print rule "--:|--:|"
      for (k = 1; k <= nw; k++) {
        line = "| " (w[k] == "memory" ? "most memory, MiB" : w[k]) " |"
        for (i = 1; i <= np; i++) line = line " " cell(p[i], w[k]) " |"
        print line " " ratio(p[1], "ganesha", w[k]) " | " ratio(p[1], "ganesha-durable", w[k]) " |"
      }
    }' "$RESULTS"
}

main
write_figures bench-nfs
