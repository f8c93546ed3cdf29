#!/usr/bin/env bash
# The documents as a book, in target/book. mdBook comes from crates.io, built once. That links between documents
# lead somewhere, and that each document is a chapter, is checked by cargo xtask tidy; the book's own, headings too,
# by book-links.py.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
. scripts/tools.sh

cargo xtask tidy
need_tool mdbook
"$TOOLS/bin/mdbook" build --dest-dir "$(realpath -m "$TARGET")/book"
scripts/book-links.py "$TARGET/book"
say "the book begins at $TARGET/book/index.html"
