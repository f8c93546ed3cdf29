# Four programs that are told what is durable, on a mount in the default mode, all at once: sqlite (with
# a rollback journal and with a write-ahead log), git, redis (appendfsync always), postgres. The server is
# killed under them; after the next opening everything that a program was told is there, and its own
# checker is content. PROGRAM_ROUNDS times, each on the volume that the round before has left.
# shellcheck shell=bash

stage_programs() {
  [ -z "$QUICK" ] || return 0
  [ -c /dev/fuse ] || { skip "programs: there is no /dev/fuse"; return; }
  is_root || { skip "programs: postgres runs as a user of its own: it needs root"; return; }
  local postgres image round
  postgres=$(find /usr/lib/postgresql -maxdepth 3 -name initdb -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
  for need in redis-server git python3 "$postgres/initdb"; do
    have "$need" || { skip "programs: there is no $need"; return; }
  done
  image=$(on_disk programs.img); rm -f "$image"
  check "programs: mkfs" "$CAIRN" mkfs "$image" --size 2G || return
  for round in $(seq "${PROGRAM_ROUNDS:-2}"); do programs_round "$round" "$image" || return; done
  rm -f "$image"
}

# One crash: written, killed, opened again, checked.
programs_round() {
  local mnt=$WORK/programs name="programs, crash $1" one writers=()
  serve_at "$mnt" "$2" || { fail "$name: $(tail -n 1 "$mnt.log")"; return 1; }
  for one in sqlite git redis; do
    mkdir "$mnt/$one-$1"; rm -f "$mnt.$one"
    python3 scripts/conformance/programs.py write $one "$mnt/$one-$1" "$mnt.$one" 2>"$mnt.$one.log" & writers+=($!)
  done
  postgres_start "$mnt/postgres-$1" new >"$mnt.postgres.log" 2>&1 || { fail "$name: postgres does not start: $(tail -n 1 "$mnt.postgres.log")"; return 1; }
  postgres_write "$mnt" & writers+=($!)
  sleep 8
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null
  pkill -KILL -f "[p]ostgres.*$mnt/postgres-$1"; pkill -KILL -f "redis-server.*$mnt"; kill "${writers[@]}" 2>/dev/null; wait "${writers[@]}" 2>/dev/null
  release "$mnt"
  serve_at "$mnt" "$2" || { fail "$name: it does not open again: $(tail -n 1 "$mnt.log")"; return 1; }
  for one in sqlite git redis; do
    check "$name: $one, $(wc -l <"$mnt.$one") acknowledgements" \
      python3 scripts/conformance/programs.py check $one "$mnt/$one-$1" "$mnt.$one"
  done
  check "$name: postgres, $(wc -l <"$mnt.acked") acknowledgements" postgres_check "$mnt" "$mnt/postgres-$1"
  check "$name: clean close" stop
  check "$name: e2fsck" fsck_clean "$2"
}

as_postgres() { runuser -u postgres -- "$@"; }
ask_postgres() { as_postgres psql -X -q -tA -v ON_ERROR_STOP=1 -h "$WORK/pg" -d postgres "$@"; }

# postgres_start DIR [new]: a cluster on the mount; its socket lies beside it.
postgres_start() {
  mkdir -p "$WORK/pg"; chown postgres "$WORK/pg"
  if [ "${2:-}" = new ]; then
    mkdir "$1"; chown postgres "$1"
    as_postgres "$postgres/initdb" -D "$1" --no-locale -E UTF8 || return
  fi
  # A postmaster that was killed leaves its own number and its memory's behind.
  rm -f "$1/postmaster.pid"
  as_postgres "$postgres/pg_ctl" -D "$1" -w -t 120 -l "$WORK/pg/log" -o "-k $WORK/pg -h ''" start </dev/null
}

# Rows one by one, each noted when it is committed, beside pgbench.
postgres_write() {
  rm -f "$1.acked"
  as_postgres pgbench -q -i -s 2 -h "$WORK/pg" postgres >/dev/null 2>&1
  ask_postgres -c 'create table acked (n bigint primary key)' || return
  as_postgres pgbench -c 4 -T 60 -h "$WORK/pg" postgres >/dev/null 2>&1 &
  seq 1 1000000 | sed 's/.*/insert into acked values (&) returning n;/' | ask_postgres 2>/dev/null >"$1.acked"
  wait
}

# What was acknowledged is there, pgbench's four sums are one, and the indexes fit their tables.
postgres_check() {
  local told most sums
  postgres_start "$2" || { tail -n 3 "$WORK/pg/log"; return 1; }
  told=$(tail -n 1 "$1.acked") most=$(ask_postgres -c 'select max(n) from acked')
  [ "$told" -gt 0 ] && [ "$most" -ge "$told" ] || { say "row $told was committed, $most is the last"; return 1; }
  sums=$(ask_postgres -c "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)
    and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)
    and (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers)")
  [ "$sums" = t ] || { say "pgbench's sums differ"; return 1; }
  ask_postgres -c 'create extension if not exists amcheck' && as_postgres "${postgres:?}/pg_amcheck" -h "$WORK/pg" --heapallindexed postgres || return 1
  as_postgres "$postgres/pg_ctl" -D "$2" -w -m fast stop
}
