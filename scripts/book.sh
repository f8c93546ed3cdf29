#!/usr/bin/env bash
# The documents as a book, in target/book. mdBook comes from crates.io, built once; that links lead
# somewhere, and that each document is a chapter, is checked by cargo xtask tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

MDBOOK=0.4.52
cargo xtask tidy
if [ ! -x "$TOOLS/bin/mdbook" ]; then
  say "building mdbook $MDBOOK (once, some minutes)"
  cargo install --quiet --locked --root "$TOOLS" --target-dir "$TOOLS/build" --version $MDBOOK --no-default-features --features search mdbook
  rm -rf "$TOOLS/build"
fi
"$TOOLS/bin/mdbook" build --dest-dir "$TARGET/book"
say "the book begins at $TARGET/book/index.html"
