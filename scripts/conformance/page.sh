# What people look at: the status page of a server at work, as headless Chromium draws it, and `cairn top`
# in a terminal of tmux. The pictures are kept in target/screenshots.
# shellcheck shell=bash

stage_page() {
  [ -z "$QUICK" ] || return 0
  [ -c /dev/fuse ] || { skip "page: there is no /dev/fuse"; return; }
  have chromium && have tmux || { skip "page: it needs chromium and tmux"; return; }
  local mnt=$WORK/page shots=$TARGET/screenshots load at
  mkdir -p "$mnt" "$shots"; MOUNTS+=("$mnt")
  check "page: mkfs" "$CAIRN" mkfs "$mnt.img" --size 256M || return
  serve "$mnt.log" "$mnt.img" --no-nfs --mount "$mnt" --http 127.0.0.1:0 || { fail "page: $(tail -n 1 "$mnt.log")"; return; }
  at=$(sed -n 's/^status: \(http:[^,]*\),.*/\1/p' "$mnt.log")
  while cp -r scripts "$mnt/work" && sync && rm -r "$mnt/work" && sleep 0.1; do :; done 2>/dev/null & load=$!
  sleep 1
  page_shot "$shots/page-wide.png" 1100,1200 "$at"
  page_shot "$shots/page-phone-dark.png" 420,1400 "$at" --force-dark-mode --enable-features=WebContentsForceDark
  check "page: it shows the volume, its promise and its operations" page_says "$at"
  check "page: cairn top draws the same" top_says page "$shots/top.txt"
  page_metrics "$at"
  kill "$load" 2>/dev/null; wait "$load" 2>/dev/null
  check "page: clean close" stop
}

# The metrics are what Prometheus reads, and its alerts are raised when they should be.
page_metrics() {
  have promtool || { leave_out "page: metrics and alerts are judged by promtool (Debian: prometheus)"; return; }
  check "page: promtool test rules" promtool test rules contrib/prometheus/cairn.rules.test.yml
  check "page: promtool check metrics" metrics_are_right "$1"
}

# What it thinks of names and helps (of which OpenMetrics has other rules) is no fault.
metrics_are_right() {
  local said; said=$(curl -s -H 'Accept: text/plain' "${1%/}/metrics" | sed '/^# EOF/d' | promtool check metrics 2>&1)
  ! grep -E 'error while|parsing error' <<<"$said"
}

browse() { chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=5000 "$@" 2>/dev/null; }

page_shot() {
  local to=$1 size=$2 url=$3; shift 3; rm -f "$to"
  check "page: drawn at $size" browse "$@" --window-size="$size" --screenshot="$to" "$url"
  [ "$(stat -c %s "$to" 2>/dev/null || echo 0)" -gt 20000 ] || fail "page: $to is missing or empty"
}

# The page as its script has made it.
page_says() {
  local text word; text=$(browse --dump-dom "$1" | sed '/<script>/,/<.script>/d')
  for word in '<h2>/page ' 'mode unified' 'in order after a crash' '<td>create</td>' 'operations/s' '<path d="M'; do
    grep -qF -- "$word" <<<"$text" || { say "the page does not say $word"; return 1; }
  done
  ! grep -q 'does not answer' <<<"$text" || { say "it says that the server does not answer"; return 1; }
}

top_says() {
  local word
  tmux -L cairn-page new-session -d -x 120 -y 36 "$CAIRN" top "$1"; sleep 3
  tmux -L cairn-page capture-pane -p >"$2"; tmux -L cairn-page send-keys q; tmux -L cairn-page kill-server 2>/dev/null
  for word in '/page' 'mode unified' create 'operations/s'; do grep -qF -- "$word" "$2" || { say "cairn top does not show $word"; return 1; }; done
}
