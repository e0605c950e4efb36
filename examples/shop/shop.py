#!/usr/bin/env python3
"""A small shop for plans/shop.toml: a login that gives a token and a cookie, pages of items that want both, a cart, and what pages embed.

Standard library only. It answers wrong tokens with 403 and an unknown cart with 409, so that a load that mixes up its users is seen.
"""

import argparse
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FILES = {"/site.css": ("text/css", 18_000), "/logo.png": ("image/png", 7_000), "/shop.js": ("text/javascript", 42_000)}


def token_of(user):
    return hashlib.sha256(("token of " + user).encode()).hexdigest()[:16]


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are one segment, and it leaves at once.
    wbufsize = 65_536
    disable_nagle_algorithm = True

    def answer(self, status, kind, body, fields=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def user(self):
        pairs = (part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";"))
        return next((value for name, _, value in pairs if name == "sid"), "")

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path in FILES:
            kind, length = FILES[url.path]
            return self.answer(200, kind, b"/* */ " * (length // 6))
        if url.path == "/basket":
            return self.answer(200, "text/html", b"<h1>Your basket</h1>")
        if url.path.startswith("/item/"):
            if parse_qs(url.query).get("token") != [token_of(self.user())]:
                return self.answer(403, "text/plain", b"who are you?")
            cart = token_of("cart " + self.user())
            page = f"<h1>Item {url.path[6:]}</h1><form><input name=\"cart\" value=\"{cart}\"></form>" + "<p>lorem ipsum</p>" * 400
            return self.answer(200, "text/html", page.encode())
        self.answer(404, "text/plain", b"nothing here")

    def do_POST(self):
        body = self.body()
        if self.path == "/login":
            user = json.loads(body)["user"]
            answer = json.dumps({"session": {"token": token_of(user)}}).encode()
            return self.answer(201, "application/json", answer, [("Set-Cookie", f"sid={user}; Path=/; HttpOnly")])
        if self.path == "/cart":
            if parse_qs(body.decode()).get("cart") != [token_of("cart " + self.user())]:
                return self.answer(409, "text/plain", b"another's cart")
            return self.answer(303, "text/plain", b"", [("Location", "/basket")])
        self.answer(404, "text/plain", b"nothing here")

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description="A small shop.")
    parser.add_argument("--listen", default="127.0.0.1:8080", help="address and port")
    host, _, port = parser.parse_args().listen.rpartition(":")
    ThreadingHTTPServer.request_queue_size = 1024
    ThreadingHTTPServer((host, int(port)), Shop).serve_forever()


main()
