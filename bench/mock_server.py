#!/usr/bin/env python3
"""A stand-in for `carat serve`: its paths and forms without a model, for tests of what talks to it.

    bench/mock_server.py --port 8081 --token-ms 20 [--no-template] [--key SECRET]

An answer is "word0 word1 …", one token a word, or the text registered for a prompt in `Mock.answers`. A prompt counts
one token a word. What was counted is in `Mock.counts`, and in /metrics under the server's names.
"""

import argparse
import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

WEB = Path(__file__).resolve().parent.parent / "web"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
CATEGORIES = {"weights": 92_600_000, "kv.local": 0, "kv.global": 188_700_000, "activations": 15_800_000,
              "logits": 1_200_000, "tokenizer": 6_800_000, "prefix": 25_000_000, "io": 2_300_000, "fixed": 10_500_000}
BUDGET = 420_000_000
PAGES = 256


@dataclass
class Counts:
    started: int = 0
    finished: int = 0
    vanished: int = 0
    refused: int = 0
    running: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


@dataclass
class Mock:
    token_s: float = 0.02
    prefill_s: float = 0.0    # a prompt token
    template: bool = True
    loading: bool = False     # nothing is known of the model yet
    key: str = ""
    most_running: int = 1000  # past it: 503
    context: int = 2048
    longest: int = 64         # tokens of an answer that nobody registered, whatever max_tokens says
    answers: dict[str, str] = field(default_factory=dict)  # by what the last message or the prompt contains
    counts: Counts = field(default_factory=Counts)
    seen: list[dict] = field(default_factory=list)         # bodies of requests
    prefixes: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task] = field(default_factory=set)  # one a connection

    async def start(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, limit=1 << 24)
        return self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()

    async def one(self, reader, writer) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return False
        parts = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            self.reply(writer, 400, error("not HTTP"), close=True)
            return False
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = parts[1].split("?")[0]
        if self.key and path.startswith("/v1") and headers.get("authorization") != f"Bearer {self.key}":
            self.reply(writer, 401, error("The API key is wrong or missing.", code="invalid_api_key"))
        elif parts[0] == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            await self.complete(path, body, writer)
        elif (parts[0], path) == ("POST", "/tokenize"):
            asked = json.loads(body)
            ids = [2] * asked.get("add_special", False) + [3 + hash(word) % 500 for word in asked["content"].split()]
            self.reply(writer, 200, {"tokens": ids})
        elif parts[0] == "GET":
            self.get(path, writer)
        else:
            self.reply(writer, 404, error("no such path"))
        await writer.drain()
        return headers.get("connection", "") != "close"

    def get(self, path: str, writer) -> None:
        file = WEB / (path.lstrip("/") or "index.html")
        if path == "/v1/models":
            known = {} if self.loading else {"chat": self.template, "context": self.context}
            self.reply(writer, 200, {"object": "list", "data": [{"id": "mock-135m", "object": "model", **known}]})
        elif self.loading and path in ("/plan", "/health"):
            self.reply(writer, 503, error("The model is being loaded.", code="loading"))
        elif path == "/health":
            self.reply(writer, 200, {"status": "ok"})
        elif path == "/plan":
            self.reply(writer, 200, {"fits": True, "budget": BUDGET, "total": sum(CATEGORIES.values()),
                                     "categories": CATEGORIES})
        elif path == "/metrics":
            self.reply(writer, 200, self.metrics(), kind="text/plain; version=0.0.4")
        elif file.parent == WEB and file.is_file():
            self.reply(writer, 200, file.read_text(), kind=TYPES[file.suffix] + "; charset=utf-8",
                       more={"Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff"})
        else:
            self.reply(writer, 404, error("no such path"))

    def metrics(self) -> str:
        c = self.counts
        lines = ["# a stand-in"]
        lines += [f'carat_memory_bytes{{category="{name}",kind="planned"}} {size}' for name, size in CATEGORIES.items()]
        lines += [f"carat_kv_pages_total {PAGES}", f"carat_kv_pages_free {PAGES - 8 * c.running}",
                  f"carat_requests_running {c.running}", "carat_requests_waiting 0",
                  f'carat_requests_total{{outcome="stop"}} {c.finished}',
                  f'carat_requests_total{{outcome="cancelled"}} {c.vanished}',
                  f"carat_prompt_tokens_total {c.prompt_tokens}",
                  f"carat_cached_prompt_tokens_total {c.cached_tokens}",
                  f"carat_generated_tokens_total {c.generated_tokens}"]
        return "\n".join(lines) + "\n"

    async def pace(self, place: int) -> None:
        """Before the token at `place` of an answer."""
        await asyncio.sleep(self.token_s)

    async def complete(self, path: str, body: bytes, writer) -> None:
        try:
            asked = json.loads(body)
            temperature, limit = asked.get("temperature", 1), asked.get("max_tokens", 1)
            if not isinstance(temperature, (int, float)) or limit < 0 or isinstance(asked.get("prompt"), int):
                raise ValueError
        except (ValueError, AttributeError, RecursionError):
            return self.reply(writer, 400, error("The body is not a request."))
        if asked.get("prompt") == [99999999]:
            return self.reply(writer, 400, error("No such token."))
        self.seen.append(asked)
        chat = path.startswith("/v1/chat")
        if chat and not self.template:
            return self.reply(writer, 400, error("The model has no chat template.", code="no_chat_template"))
        prompt = "\n".join(m["content"] for m in asked["messages"]) if chat else asked["prompt"]
        size = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        if size > self.context:
            return self.reply(writer, 400, error(f"The prompt has {size} tokens, the context {self.context}."))
        if self.counts.running >= self.most_running:
            self.counts.refused += 1
            return self.reply(writer, 503, error("The queue is full."), more={"Retry-After": "1"})
        self.counts.started += 1
        self.counts.running += 1
        try:
            await self.answer(chat, asked, prompt, size, writer)
            self.counts.finished += 1
        except ConnectionError:
            self.counts.vanished += 1
            raise
        finally:
            self.counts.running -= 1

    def cached(self, prompt) -> int:
        """Tokens of the longest prompt seen that this one begins with."""
        if not isinstance(prompt, str):
            return 0
        best = max((p for p in self.prefixes if prompt.startswith(p)), key=len, default="")
        self.prefixes.add(prompt)
        return max(0, len(best.split()) - (best == prompt))

    async def answer(self, chat: bool, asked: dict, prompt, size: int, writer) -> None:
        limit = asked.get("max_tokens", 64)
        special = next((text for key, text in self.answers.items() if key in str(prompt)), None)
        words = [f"word{i} " for i in range(min(limit, self.longest))]
        if special is not None:
            words = [special[i:i + 7] for i in range(0, len(special), 7)][:limit]
        finish = "stop" if len(words) < limit else "length"
        cached = self.cached(prompt)
        self.counts.prompt_tokens += size
        self.counts.cached_tokens += cached
        usage = {"prompt_tokens": size, "completion_tokens": len(words), "total_tokens": size + len(words),
                 "prompt_tokens_details": {"cached_tokens": cached}}
        await asyncio.sleep(self.prefill_s * (size - cached))

        def choice(text, reason):
            if not chat:
                return {"index": 0, "text": text, "finish_reason": reason}
            key = "delta" if asked.get("stream") else "message"
            return {"index": 0, key: {"content": text} if text else {}, "finish_reason": reason}

        common = {"id": "mock", "object": "chat.completion.chunk" if chat else "text_completion",
                  "created": int(time.time()), "model": "mock-135m"}
        if not asked.get("stream"):
            await asyncio.sleep(self.token_s * len(words))
            self.counts.generated_tokens += len(words)
            return self.reply(writer, 200, {**common, "choices": [choice("".join(words), finish)], "usage": usage})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

        async def event(data: dict | str) -> None:
            text = data if isinstance(data, str) else json.dumps(data)
            raw = f"data: {text}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            await writer.drain()
            if writer.transport.is_closing():
                raise ConnectionResetError

        for place, word in enumerate(words):
            await self.pace(place)
            self.counts.generated_tokens += 1
            await event({**common, "choices": [choice(word, None)]})
        await event({**common, "choices": [choice("", finish)]})
        if asked.get("stream_options", {}).get("include_usage"):
            await event({**common, "choices": [], "usage": usage})
        await event("[DONE]")
        writer.write(b"0\r\n\r\n")

    @staticmethod
    def reply(writer, status: int, body, kind="application/json", more=None, close=False) -> None:
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {"Content-Type": kind, "Content-Length": len(raw), **(more or {})}
        if close:
            headers["Connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + raw)


class RunningMock:
    """A Mock, or `of`, in a thread of its own."""

    def __init__(self, of=None, port: int = 0, **settings):
        self.mock = (of or Mock)(**settings)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self.mock.start(port), self.loop).result()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.mock.stop(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)


def error(message: str, code: str | None = None) -> dict:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-ms", type=float, default=20)
    parser.add_argument("--no-template", action="store_true")
    parser.add_argument("--key", default="")
    arguments = parser.parse_args()
    mock = Mock(token_s=arguments.token_ms / 1000, template=not arguments.no_template, key=arguments.key)
    print(f"http://127.0.0.1:{await mock.start(arguments.port)}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
