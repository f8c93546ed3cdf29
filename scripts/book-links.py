#!/usr/bin/env python3
"""Does every link of the book lead somewhere: to a file of the book, and to a heading that is there? Addresses of
other hosts are not looked at. Usage: book-links.py DIR"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page can be asked for, and what it asks for."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.names.update(attrs[a] for a in ("id", "name") if attrs.get(a))
        self.links += [attrs[a] for a in ("href", "src") if attrs.get(a)]


def main(root):
    # 404.html and toc.html are the reader's own; print.html is all pages in one.
    paths = [p for p in root.rglob("*.html") if p.name not in ("404.html", "toc.html", "print.html")]
    pages = {p.resolve(): Page(p.read_text()) for p in paths}
    broken = [f"{p.relative_to(root.resolve())}: {to}" for p, page in pages.items() for to in page.links if not leads(pages, p, to)]
    print(*sorted(set(broken)), sep="\n", end="\n" if broken else "")
    links = sum(len(page.links) for page in pages.values())
    print(f"{links} links on {len(pages)} pages, {len(set(broken))} lead nowhere")
    return 1 if broken or len(pages) < 2 else 0


def leads(pages, page, to):
    url = urllib.parse.urlsplit(to)
    if url.scheme or url.netloc:
        return True
    target = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
    if not target.is_file():
        return False
    fragment = urllib.parse.unquote(url.fragment)
    return not fragment or target not in pages or fragment in pages[target].names


sys.exit(main(pathlib.Path(sys.argv[1])))
