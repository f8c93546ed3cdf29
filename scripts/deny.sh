#!/usr/bin/env bash
# Are the dependencies what deny.toml allows: licences, sources, bans, one version of each? And is any of them known
# to be unsafe, if the list of such can be reached from here. Takes seconds, with what is fetched the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
. scripts/tools.sh

need_deny || { say "deny: left out: cargo-deny can be neither fetched nor built here"; exit 0; }
"$DENY" --log-level error check licenses bans sources
# The list lies in a repository of its own.
if timeout 60 "$DENY" --log-level off fetch db >/dev/null 2>&1; then
  "$DENY" --log-level error check advisories && say "deny: no dependency is known to be unsafe"
else
  say "deny: advisories are left out: the list of them cannot be reached from here"
fi
say "deny: licences, bans and sources are as deny.toml says"
