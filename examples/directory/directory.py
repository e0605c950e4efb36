"""A directory search service: 100,000 entries in SQLite with a full-text index, one search page, one page per entry.

    python3 directory.py make [FILE] [ENTRIES]     write the database
    gunicorn directory:application                 serve it (WSGI)

Environment: DIRECTORY_DB is the database's file (default: directory.db beside this file).

Pages say honestly how long they may be kept: the data never change while the service runs, so a page's ETag is that of
the database and the query, and a shared cache may keep it for DIRECTORY_MAX_AGE seconds (default 60).
"""

import hashlib
import html
import os
import sqlite3
import sys
import urllib.parse

import names

HERE = os.path.dirname(os.path.abspath(__file__))
DATABASE = os.environ.get("DIRECTORY_DB", os.path.join(HERE, "directory.db"))
MAX_AGE_S = int(os.environ.get("DIRECTORY_MAX_AGE", "60"))
ENTRIES = 100_000
# Hits on a page.
PAGE = 20
# Words of a query that are looked at; more say nothing more.
WORDS_MAX = 8

SCHEMA = """
CREATE TABLE entry (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, kana TEXT NOT NULL, trade TEXT NOT NULL, town TEXT NOT NULL,
    phone TEXT NOT NULL, about TEXT NOT NULL
);
CREATE VIRTUAL TABLE entry_text USING fts5 (name, kana, trade, town, content = 'entry', content_rowid = 'id');
CREATE TABLE made (version TEXT NOT NULL);
"""


def make(path, count):
    """Writes the database beside its place and moves it there, so that it is whole or not there."""
    beside = "%s.%d" % (path, os.getpid())
    if os.path.exists(beside):
        os.remove(beside)
    database = sqlite3.connect(beside)
    try:
        database.executescript("PRAGMA journal_mode = off; PRAGMA synchronous = off;" + SCHEMA)
        database.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", names.entries(count))
        database.execute("INSERT INTO entry_text (entry_text) VALUES ('rebuild')")
        database.execute("INSERT INTO made VALUES (?)", ("1-%d" % count,))
        database.commit()
        database.execute("INSERT INTO entry_text (entry_text) VALUES ('optimize')")
        database.commit()
    finally:
        database.close()
    os.replace(beside, path)


class Directory:
    """One connection to the database. Each worker process has its own."""

    def __init__(self, path):
        # Read only, without locks: the file does not change while it is served.
        self.database = sqlite3.connect("file:%s?mode=ro&immutable=1" % urllib.parse.quote(path), uri=True)
        (self.version,) = self.database.execute("SELECT version FROM made").fetchone()

    def search(self, words, page):
        """Names, best first, and whether there are more."""
        # Each word in quotes is text to FTS5, whatever is in it; the star makes it a beginning.
        match = " ".join('"%s"*' % word.replace('"', '""') for word in words)
        rows = self.database.execute(
            "SELECT e.id, e.name, e.kana, e.town, e.phone FROM entry_text JOIN entry e ON e.id = entry_text.rowid "
            "WHERE entry_text MATCH ? ORDER BY rank, e.id LIMIT ? OFFSET ?",
            (match, PAGE + 1, page * PAGE),
        ).fetchall()
        return rows[:PAGE], len(rows) > PAGE

    def entry(self, number):
        return self.database.execute(
            "SELECT name, kana, trade, town, phone, about FROM entry WHERE id = ?", (number,)
        ).fetchone()


directory = None


def application(environ, start_response):
    """WSGI. The path behind which it is mounted may be anything: the last part of it decides."""
    body = respond(environ, start_response)
    # An answer to HEAD ends with its head; not every WSGI server sees to that.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else body


def respond(environ, start_response):
    global directory
    if directory is None:
        directory = Directory(DATABASE)
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return answer(start_response, "405 Method Not Allowed", page("Not like this", ""), [("Allow", "GET, HEAD")])
    parts = [part for part in environ.get("PATH_INFO", "/").split("/") if part]
    query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
    if len(parts) >= 2 and parts[-2] == "entry":
        return show_entry(environ, start_response, parts[-1])
    if parts and parts[-1] == "search":
        return show_search(environ, start_response, query)
    return answer(start_response, "404 Not Found", page("Nothing here", ""), [])


def show_search(environ, start_response, query):
    asked = query.get("q", [""])[0][:200]
    # A NUL would end the text for SQLite, within its quotes.
    words = asked.replace("\0", " ").split()[:WORDS_MAX]
    at = query.get("page", ["0"])[0]
    at = min(int(at), 1000) if is_number(at) and len(at) < 6 else 0
    tag = etag("search", " ".join(words), str(at))
    if tag_matches(environ, tag):
        return not_modified(start_response, tag)
    hits, more = directory.search(words, at) if words else ([], False)
    lines = "".join(
        '<li><a href="entry/%d">%s</a> (%s), %s, %s</li>\n' % (number, *map(html.escape, rest)) for number, *rest in hits
    )
    following = '<p><a href="search?%s">more</a></p>' % html.escape(
        urllib.parse.urlencode({"q": " ".join(words), "page": at + 1})
    )
    body = '<form><input name="q" value="%s"><button>Search</button></form>\n<ol start="%d">\n%s</ol>\n%s' % (
        html.escape(asked, quote=True), at * PAGE + 1, lines, following if more else ""
    )
    return answer(start_response, "200 OK", page("Search: " + asked, body), kept(tag))


def show_entry(environ, start_response, number):
    found = directory.entry(int(number)) if is_number(number) and len(number) < 10 else None
    if found is None:
        return answer(start_response, "404 Not Found", page("No such entry", ""), [])
    tag = etag("entry", number)
    if tag_matches(environ, tag):
        return not_modified(start_response, tag)
    names_of = ("Name", "Kana", "Trade", "Town", "Phone", "About")
    lines = "".join("<dt>%s</dt><dd>%s</dd>\n" % (name, html.escape(value)) for name, value in zip(names_of, found))
    return answer(start_response, "200 OK", page(found[0], "<dl>\n%s</dl>" % lines), kept(tag))


def is_number(text):
    # Not isdigit alone, which also takes digits that int does not: superscripts.
    return text.isascii() and text.isdigit()


def etag(*parts):
    text = "\0".join((directory.version,) + parts)
    return '"%s"' % hashlib.sha256(text.encode()).hexdigest()[:20]


def tag_matches(environ, tag):
    asked = environ.get("HTTP_IF_NONE_MATCH", "")
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in asked.split(","))


def kept(tag):
    return [("ETag", tag), ("Cache-Control", "public, max-age=%d" % MAX_AGE_S)]


def not_modified(start_response, tag):
    start_response("304 Not Modified", kept(tag))
    return [b""]


def page(title, body):
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>%s</title></head>\n<body>\n<h1>%s</h1>\n'
        "%s\n</body>\n</html>\n" % (html.escape(title), html.escape(title), body)
    ).encode()


def answer(start_response, status, body, fields):
    fields = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(body)))] + fields
    start_response(status, fields)
    return [body]


def main(words):
    if not words or words[0] != "make" or len(words) > 3:
        sys.exit("usage: directory.py make [FILE] [ENTRIES]")
    make(words[1] if len(words) > 1 else DATABASE, int(words[2]) if len(words) > 2 else ENTRIES)


if __name__ == "__main__":
    main(sys.argv[1:])
