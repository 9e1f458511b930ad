"""What bench/load.py talks to a server with: streamed completions, plain requests, and watchers beside the load.

asyncio protocols over plain sockets, one connection a request. A token costs the client some 50 µs, so that on a
machine of few CPUs the load hardly slows the server it measures.
"""

import asyncio
import http.client
import json
import re
import socket
import struct
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Outcome:
    """One request as its client saw it. Times are seconds of one clock; `due` is when it should have been sent."""
    due: float = 0
    sent: float = 0
    first: float = 0  # first piece of text; 0: none came
    last: float = 0   # last piece of text
    done: float = 0
    kind: str = "ok"  # ok, refused, vanished, or what went wrong
    asked_prompt: int = 0
    asked_output: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    pieces: int = 0
    finish: str = ""
    degraded: str = ""
    text: str = ""

    @property
    def first_token_s(self) -> float:
        return self.first - self.due

    @property
    def token_s(self) -> float | None:
        """Seconds a token after the first."""
        return (self.last - self.first) / (self.completion_tokens - 1) if self.completion_tokens > 1 else None

    def as_dict(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "text"}


class Server:
    """An address, and what is asked of it beside the load."""

    def __init__(self, url: str, key: str = "", timeout: float = 120):
        found = re.fullmatch(r"http://([^:/]+):(\d+)/?", url)
        if not found:
            raise SystemExit(f"{url}: expected http://HOST:PORT")
        self.host, self.port = found[1], int(found[2])
        self.key = key
        self.timeout = timeout

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return (f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {length}\r\nConnection: close\r\n{key}\r\n").encode()

    def ask(self, method: str, path: str, body=None, timeout: float = 30) -> tuple[int, bytes]:
        """A whole answer, blocking."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body=None) -> dict | None:
        """None when the server has no such path."""
        status, text = self.ask(method, path, body)
        return json.loads(text) if status == 200 else None

    def metrics(self) -> dict[str, float]:
        """`name{labels}` to number; empty when there are none."""
        status, text = self.ask("GET", "/metrics")
        return parse_metrics(text.decode()) if status == 200 else {}


def parse_metrics(text: str) -> dict[str, float]:
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    return values


class Chunks:
    """Undoes chunked transfer encoding, piece by piece."""

    def __init__(self):
        self.rest = b""
        self.left = 0  # bytes of the open chunk, its line end included
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        data = self.rest + data
        out = []
        at = 0
        while at < len(data):
            if self.left:
                take = min(self.left, len(data) - at)
                out.append(data[at:at + min(take, max(0, self.left - 2))])
                self.left -= take
                at += take
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            size = int(data[at:end].split(b";")[0] or b"0", 16)
            at = end + 2
            if size == 0:
                self.ended = True
                break
            self.left = size + 2
        self.rest = data[at:]
        return b"".join(out)


class Stream(asyncio.Protocol):
    """Sends one request and reads its event stream. `leave_after` pieces of text it goes without a word; 0: as soon as
    the request is sent; None: never."""

    def __init__(self, request: bytes, outcome: Outcome, leave_after: int | None = None, reset: bool = False):
        self.request = request
        self.outcome = outcome
        self.leave_after = leave_after
        self.reset = reset
        self.ended = asyncio.get_running_loop().create_future()
        self.head = b""
        self.status = 0
        self.body = b""
        self.chunks = None

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.outcome.sent = time.perf_counter()
        transport.write(self.request)
        if self.leave_after == 0:
            self.leave()

    def data_received(self, data):
        now = time.perf_counter()
        if not self.status:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = self.head[end + 4:]
            self.read_head(self.head[:end].decode("latin-1"))
        self.body += self.chunks.feed(data) if self.chunks else data
        if self.status != 200:
            return
        *lines, self.body = self.body.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self.event(line[5:].strip(), now)

    def read_head(self, head: str) -> None:
        lines = head.split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self.chunks = Chunks()
        self.outcome.degraded = headers.get("x-carat-degraded", "")

    def event(self, data: bytes, now: float) -> None:
        outcome = self.outcome
        if data == b"[DONE]":
            outcome.done = now
            self.end("ok")
            return
        event = json.loads(data)
        if "error" in event:
            self.end("stream error: " + str(event["error"].get("message", ""))[:80])
            return
        for choice in event.get("choices", ()):
            text = choice.get("text") or choice.get("delta", {}).get("content")
            if text:
                outcome.first = outcome.first or now
                outcome.last = now
                outcome.pieces += 1
                outcome.text += text
            outcome.finish = choice.get("finish_reason") or outcome.finish
        if usage := event.get("usage"):
            outcome.prompt_tokens = usage["prompt_tokens"]
            outcome.completion_tokens = usage["completion_tokens"]
            outcome.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        if self.leave_after and outcome.pieces >= self.leave_after:
            self.leave()

    def leave(self) -> None:
        self.outcome.kind = "vanished"
        if self.reset:
            # Closing with lingering off sends RST instead of FIN.
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()
        self.end("vanished")

    def connection_lost(self, error):
        if self.status in (429, 503):
            self.end("refused")
        elif self.status not in (0, 200):
            self.end(f"status {self.status}: {self.body[:120].decode(errors='replace')}")
        else:
            self.end("connection lost" if error is None else type(error).__name__)

    def end(self, kind: str) -> None:
        if not self.ended.done():
            self.outcome.done = self.outcome.done or time.perf_counter()
            self.ended.set_result(kind)


async def complete(server: Server, body: dict, due: float | None = None, path: str = "/v1/completions",
                   leave_after: int | None = None, reset: bool = False) -> Outcome:
    """One streamed completion, to its end."""
    outcome = Outcome(due=time.perf_counter() if due is None else due)
    raw = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    stream = None
    try:
        async with asyncio.timeout(server.timeout):
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: Stream(server.head("POST", path, len(raw)) + raw, outcome, leave_after, reset),
                server.host, server.port)
            outcome.kind = await stream.ended
    except TimeoutError:
        outcome.kind = "timeout"
    except OSError as error:
        outcome.kind = type(error).__name__
    finally:
        outcome.done = outcome.done or time.perf_counter()
        if stream:
            stream.transport.close()
    return outcome


# --- beside the load ------------------------------------------------------------------------


@dataclass
class Watch:
    """Threads that ask /health and read the process's memory while a load runs."""
    server: Server
    pid: int | None = None
    every: float = 0.2
    health_s: list[float] = field(default_factory=list)
    health_failures: list[str] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)  # seconds from the start, bytes

    def __enter__(self):
        self.stop = threading.Event()
        self.started = time.perf_counter()
        self.threads = [threading.Thread(target=self.ask_health, daemon=True)]
        if self.pid:
            self.threads.append(threading.Thread(target=self.read_memory, daemon=True))
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def ask_health(self) -> None:
        while not self.stop.is_set():
            begin = time.perf_counter()
            try:
                status, _ = self.server.ask("GET", "/health", timeout=10)
                self.health_s.append(time.perf_counter() - begin)
                if status != 200:
                    self.health_failures.append(f"status {status}")
            except OSError as error:
                self.health_failures.append(type(error).__name__)
            self.stop.wait(self.every)

    def read_memory(self) -> None:
        while not self.stop.is_set():
            if memory := process_memory(self.pid):
                self.resident.append((time.perf_counter() - self.started, memory["VmRSS"]))
            self.stop.wait(1)


def process_memory(pid: int) -> dict[str, int]:
    """VmRSS, VmHWM, VmSwap in bytes; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return {name: 1024 * int(size) for name, size in re.findall(r"^(VmRSS|VmHWM|VmSwap):\s+(\d+) kB", text, re.M)}
