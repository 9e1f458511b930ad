"""A hub on this machine for the tests: repositories, the hub's API, a second host for large files, and faults."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """`files`: {"OWNER/REPO": {"path": bytes}}. Files above 1000 bytes are large ones, which another host sends."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.listed: dict[str, list] = {}  # instead of the true list
        self.token: str | None = None  # asked for
        self.requests: list[tuple[str, str, dict]] = []  # host, path, headers
        # Faults of the host of large files.
        self.cut: list[int] = []  # bytes after which the next answers break off
        self.no_ranges = False
        self.wrong_byte = False
        self.busy = 0  # so many answers are 503
        self.etag_changes = False
        self.no_digest = False
        self.redirect: str | None = None  # elsewhere than to the second host
        self.gone = False  # after a cut answer there is nothing more
        self.lock = threading.Lock()
        self.hub = self._serve(HubHandler)
        self.store = self._serve(StoreHandler)
        self.url = f"http://127.0.0.1:{self.hub.server_port}"

    def _serve(self, handler) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"owner": self}))
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # clients that leave are what some tests are about
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self) -> None:
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def listing(self, repository: str) -> dict:
        siblings = self.listed.get(repository)
        if siblings is None:
            siblings = []
            for path, content in self.files[repository].items():
                entry = {"rfilename": path, "size": len(content), "blobId": git_id(content)}
                if len(content) > 1000:
                    entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
                siblings.append(entry)
        return {"id": repository, "sha": "c" * 40, "siblings": siblings}

    def asked(self, host: str) -> list[dict]:
        return [headers for at, _, headers in self.requests if at == host]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Hub
    host = ""

    def log_message(self, *arguments) -> None:
        pass

    def note(self) -> None:
        with self.owner.lock:
            self.owner.requests.append((self.host, self.path, {name.lower(): v for name, v in self.headers.items()}))

    def reply(self, status: int, body: bytes = b"", **headers) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class HubHandler(Handler):
    host = "hub"

    def do_GET(self) -> None:
        self.note()
        hub = self.owner
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.reply(401, b"{}", X_Error_Message="Repository not found")
        path = self.path.split("?")[0].strip("/").split("/")
        if path[:2] == ["api", "models"] and "/".join(path[2:4]) in hub.files:
            return self.reply(200, json.dumps(hub.listing("/".join(path[2:4]))).encode())
        content = None
        if len(path) >= 5 and path[2] == "resolve":
            content = hub.files.get("/".join(path[:2]), {}).get("/".join(path[4:]))
        if content is None:
            return self.reply(404, b"Entry not found")
        if len(content) <= 1000:
            return self.reply(200, content, ETag=f'"{git_id(content)}"')
        target = hub.redirect or f"http://127.0.0.1:{hub.store.server_port}/{'/'.join(path[:2])}/{'/'.join(path[4:])}"
        linked = {} if hub.no_digest else {"X_Linked_Etag": f'"{hashlib.sha256(content).hexdigest()}"'}
        self.reply(302, b"moved", Location=target, ETag='"of the redirect"', **linked)


class StoreHandler(Handler):
    """Where large files lie; it must never see the token."""

    host = "store"

    def do_GET(self) -> None:
        self.note()
        hub = self.owner
        with hub.lock:
            if hub.busy > 0:
                hub.busy -= 1
                return self.reply(503, b"later")
            if hub.gone and not hub.cut:
                return self.reply(404)
            cut = hub.cut.pop(0) if hub.cut else None
            etag = f'"store-{len(hub.requests) if hub.etag_changes else 0}"'
        path = self.path.strip("/").split("/")
        content = hub.files["/".join(path[:2])]["/".join(path[2:])]
        if hub.wrong_byte:
            content = content[:-1] + bytes([content[-1] ^ 1])
        begin = 0
        wanted = self.headers.get("Range", "")
        if wanted and not hub.no_ranges and self.headers.get("If-Range", etag) == etag:
            begin = int(wanted.removeprefix("bytes=").split("-")[0])
        if begin >= len(content):
            return self.reply(416, b"", Content_Range=f"bytes */{len(content)}")
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        body = content[begin:]
        self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
