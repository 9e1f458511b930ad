"""The loads of bench/load.py: how requests arrive, and what is asked besides."""

import asyncio
import csv
import json
import os
import random
import signal
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import load_report as report
from load_client import Outcome, Server, Watch, complete, process_memory

ROOT = Path(__file__).resolve().parent.parent


# --- what is asked --------------------------------------------------------------------------


class Corpus:
    """Ids of plain text, from which prompts of exact lengths are cut. Each begins somewhere else, so that no two share
    a prefix by chance. Where the server cannot tokenize, the ids are spread over 3 to 2,000 instead."""

    def __init__(self, server: Server, text: str, seed: int):
        self.random = random.Random(seed)
        self.ids: list[int] = []
        self.first: list[int] = []  # what a prompt begins with: BOS, when the tokenizer adds one
        for begin in range(0, len(text), 60000):
            answer = server.json("POST", "/tokenize", {"content": text[begin:begin + 60000], "add_special": False})
            if answer is None:
                break
            self.ids += answer["tokens"]
        if self.ids:
            with_special = server.json("POST", "/tokenize", {"content": "a", "add_special": True})["tokens"]
            without = server.json("POST", "/tokenize", {"content": "a", "add_special": False})["tokens"]
            self.first = with_special[:len(with_special) - len(without)]
        else:
            self.ids = [self.random.randrange(3, 2000) for _ in range(50000)]

    def prompt(self, length: int) -> list[int]:
        left = max(1, length - len(self.first))
        begin = self.random.randrange(len(self.ids))
        ids = self.first + [self.ids[(begin + i) % len(self.ids)] for i in range(left)]
        return ids[:max(1, length)]


def default_text() -> str:
    """The project's own documents: English prose, tables and some code."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return "\n\n".join(file.read_text() for file in files)


@dataclass
class Lengths:
    """Prompt and answer tokens of each request: fixed, or drawn from a trace. Those of a trace are multiplied by one
    factor, at most 1, so that the 99th percentile of prompt + answer is the context; longer prompts are cut."""
    pairs: list[tuple[int, int]]
    rule: str
    random: random.Random

    @staticmethod
    def fixed(prompt: int, output: int) -> "Lengths":
        return Lengths([(prompt, output)], f"{prompt} prompt and {output} answer tokens", random.Random(0))

    @staticmethod
    def trace(file: Path, context: int, scale: float | None, seed: int) -> "Lengths":
        with file.open() as lines:
            pairs = [(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(lines)]
        long = report.percentile([prompt + output for prompt, output in pairs], 0.99)
        scale = scale or min(1.0, context / long)
        scaled = []
        for prompt, output in pairs:
            output = min(max(1, round(output * scale)), context // 2)
            scaled.append((min(max(1, round(prompt * scale)), context - output), output))
        rule = f"{file.name}, lengths times {scale:.3f} (P99 {long} tokens, context {context})"
        return Lengths(scaled, rule, random.Random(seed))

    def draw(self) -> tuple[int, int]:
        return self.random.choice(self.pairs)


@dataclass
class Load:
    server: Server
    corpus: Corpus
    lengths: Lengths
    slo: dict
    sampling: dict
    seed: int = 1

    def body(self, prompt: int, output: int) -> dict:
        return {"prompt": self.corpus.prompt(prompt), "max_tokens": output, **self.sampling}

    async def one(self, due: float | None = None, lengths: tuple[int, int] | None = None, **how) -> Outcome:
        prompt, output = lengths or self.lengths.draw()
        outcome = await complete(self.server, self.body(prompt, output), due, **how)
        outcome.asked_prompt, outcome.asked_output = prompt, output
        return outcome

    async def open(self, rate: float, begin: float, end: float, lengths=None) -> list[Outcome]:
        """Poisson arrivals, whether or not earlier ones were answered. Latency counts from when each was due."""
        arrivals = random.Random(self.seed)
        tasks = []
        due = begin + arrivals.expovariate(rate)
        while due < end:
            await asyncio.sleep(max(0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.one(due, lengths)))
            due += arrivals.expovariate(rate)
        return list(await asyncio.gather(*tasks))

    async def closed(self, clients: int, end: float, lengths=None) -> list[Outcome]:
        """`clients` that each ask again as soon as they are answered; after a refusal, a second later."""
        async def client() -> list[Outcome]:
            outcomes = []
            while time.perf_counter() < end:
                outcomes.append(await self.one(lengths=lengths))
                if outcomes[-1].kind != "ok":
                    await asyncio.sleep(min(1, max(0, end - time.perf_counter())))
            return outcomes
        return [o for some in await asyncio.gather(*(client() for _ in range(clients))) for o in some]


# --- open, closed, sweep --------------------------------------------------------------------


async def run_open(load: Load, rates: list[float], warmup: float, seconds: float) -> tuple[list[dict], list[Outcome]]:
    levels, everything = [], []
    for rate in rates:
        begin = time.perf_counter()
        outcomes = await load.open(rate, begin, begin + warmup + seconds)
        everything += outcomes
        levels.append({"rate": rate, **report.summarize(outcomes, begin + warmup, begin + warmup + seconds, load.slo)})
    return levels, everything


async def run_closed(load: Load, clients: list[int], warmup: float, seconds: float) -> tuple[list[dict], list[Outcome]]:
    levels, everything = [], []
    for count in clients:
        begin = time.perf_counter()
        outcomes = await load.closed(count, begin + warmup + seconds)
        everything += outcomes
        levels.append(
            {"clients": count, **report.summarize(outcomes, begin + warmup, begin + warmup + seconds, load.slo)})
    return levels, everything


# --- vanish ---------------------------------------------------------------------------------


async def run_vanish(load: Load, clients: int, at_once: int) -> tuple[dict, list[Outcome]]:
    """Clients that leave without a word: a tenth at once, the others after 1 to 8 pieces; every second by RST."""
    before = report.wait_idle(load.server, 10)
    choice = random.Random(load.seed)
    room = asyncio.Semaphore(at_once)

    async def client(number: int) -> Outcome:
        async with room:
            leave = 0 if number % 10 == 0 else choice.randint(1, 8)
            return await load.one(leave_after=leave, reset=number % 2 == 0)

    outcomes = list(await asyncio.gather(*(client(i) for i in range(clients))))
    after = report.wait_idle(load.server, 30)
    last = await load.one()
    final = report.wait_idle(load.server, 10)
    gauges = {}
    for name in ("carat_requests_running", "carat_requests_waiting", "carat_kv_pages_free", "carat_kv_pages_prefix"):
        if (value := report.total(after, name)) is not None:
            gauges[name] = {"before": report.total(before, name), "after": value, "final": report.total(final, name)}
    held = lambda metrics: (report.total(metrics, "carat_kv_pages_free") or 0) + (
        report.total(metrics, "carat_kv_pages_prefix") or 0)
    return {"clients": clients, "at_once": at_once, "kinds": dict(Counter(o.kind for o in outcomes)), "gauges": gauges,
            "pages_left_behind": held(before) - held(after) if gauges else None,
            "normal_request_after": last.kind}, [*outcomes, last]


# --- interference ---------------------------------------------------------------------------


async def run_interference(load: Load, rate: float, short: tuple[int, int], long: tuple[int, int], warmup: float,
                           seconds: float) -> tuple[dict, list[Outcome]]:
    """Short requests by Poisson arrivals, first alone, then while one client asks long prompts one after another."""
    phases, everything, longs = {}, [], []
    for name in ("alone", "beside_long_prompts"):
        begin = time.perf_counter()
        end = begin + warmup + seconds
        background = asyncio.create_task(load.closed(1, end, long)) if name != "alone" else None
        outcomes = await load.open(rate, begin, end, short)
        if background:
            longs = await background
        everything += outcomes
        phases[name] = report.summarize(outcomes, begin + warmup, end, load.slo)
    ratio = lambda key, part: (phases["beside_long_prompts"][key][part] / phases["alone"][key][part]
                               if phases["alone"][key][part] and phases["beside_long_prompts"][key][part] else None)
    return {"rate": rate, "short": short, "long": long, "phases": phases, "long_prompts": len(longs),
            "long_kinds": sorted({o.kind for o in longs}),
            "long_prefill_tokens_per_s": report.spread(
                [o.prompt_tokens / o.first_token_s for o in longs if o.kind == "ok" and o.first]),
            "first_token_p95_ratio": ratio("first_token_s", "p95"), "token_p50_ratio": ratio("token_s", "p50"),
            }, everything + longs


# --- turns ----------------------------------------------------------------------------------


async def run_turns(load: Load, conversations: int, turns: int, at_once: int, system: int, user: int, output: int,
                    chat: bool, script: dict | None) -> tuple[dict, list[Outcome], dict]:
    """Conversations with one system text. Each turn sends everything before it. With a script, of an earlier run, the
    history holds that run's answers, so that the answers can be compared turn by turn."""
    words = default_text().split()
    system_text = " ".join(words[:system])
    room = asyncio.Semaphore(at_once)
    answers: dict[str, list[str]] = {}

    async def conversation(number: int) -> list[Outcome]:
        own = random.Random(f"{load.seed}-{number}")
        history: list[tuple[str, str]] = []
        outcomes = []
        for turn in range(turns):
            start = own.randrange(len(words) - user)
            question = f"[{number}.{turn}] " + " ".join(words[start:start + user])
            body = turn_body(system_text, history, question, chat)
            async with room:
                outcome = await complete(load.server, {**body, "max_tokens": output, **load.sampling},
                                         path="/v1/chat/completions" if chat else "/v1/completions")
            outcome.asked_output = output
            outcomes.append(outcome)
            answers.setdefault(str(number), []).append(outcome.text)
            history.append((question, script[str(number)][turn] if script else outcome.text))
        return outcomes

    outcomes = [o for some in await asyncio.gather(*(conversation(i) for i in range(conversations))) for o in some]
    prompt = sum(o.prompt_tokens for o in outcomes)
    cached = sum(o.cached_tokens for o in outcomes)
    summary = {"conversations": conversations, "turns": turns, "kinds": dict(Counter(o.kind for o in outcomes)),
               "prompt_tokens": prompt, "cached_tokens": cached, "cached_share": cached / prompt if prompt else None,
               "longest_prompt": max((o.prompt_tokens for o in outcomes), default=0),
               "first_token_s": report.spread([o.first_token_s for o in outcomes if o.first])}
    if script:
        pairs = [(a, b) for key, some in answers.items() for a, b in zip(some, script[key], strict=True)]
        summary["same_answers"] = sum(a == b for a, b in pairs)
        summary["compared_answers"] = len(pairs)
    return summary, outcomes, answers


def turn_body(system: str, history: list[tuple[str, str]], question: str, chat: bool) -> dict:
    if not chat:
        told = "".join(f"User: {q}\nAnswer:{a}\n" for q, a in history)
        return {"prompt": f"{system}\n\n{told}User: {question}\nAnswer:"}
    messages = [{"role": "system", "content": system}]
    for asked, answered in history:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return {"messages": [*messages, {"role": "user", "content": question}]}


# --- faults ---------------------------------------------------------------------------------

GARBAGE = [
    b"\x00\xff\xfe\x80" * 200, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]
BAD_BODIES = [b"{", b"[" * 100000, b'{"prompt": "\xff\xfe"}', b'{"prompt": 3}', b'{"prompt": "x", "temperature": "hot"}',
              b'{"prompt": "x", "max_tokens": -5}', b'{"prompt": [99999999]}', b"null", b""]


class Faults:
    """Bad company for a load: each kind again and again until `end`."""

    def __init__(self, load: Load, pid: int | None, end: float):
        self.load, self.pid, self.end = load, pid, end
        self.counts = {"slow readers": 0, "resets": 0, "garbage": 0, "bad bodies": 0, "hangups": 0}
        self.unexpected: list[str] = []
        self.random = random.Random(load.seed)

    async def again(self, what: str, every: float, act) -> None:
        while time.perf_counter() < self.end:
            try:
                await act()
            except (OSError, asyncio.IncompleteReadError):
                pass  # the server hung up first: its right
            self.counts[what] += 1
            await asyncio.sleep(min(every, max(0, self.end - time.perf_counter())))

    def tasks(self) -> list[asyncio.Task]:
        kinds = [("slow readers", 1, self.slow_reader), ("resets", 0.3, self.reset), ("garbage", 0.5, self.garbage),
                 ("bad bodies", 0.5, self.bad_body)]
        if self.pid:
            kinds.append(("hangups", 5, self.hangup))
        return [asyncio.create_task(self.again(*kind)) for kind in kinds]

    async def connect(self):
        return await asyncio.open_connection(self.load.server.host, self.load.server.port, limit=4096)

    def request(self) -> bytes:
        body = json.dumps({**self.load.body(*self.load.lengths.draw()), "stream": True}).encode()
        return self.load.server.head("POST", "/v1/completions", len(body)) + body

    async def slow_reader(self) -> None:
        reader, writer = await self.connect()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        writer.write(self.request())
        for _ in range(20):
            if not await reader.read(64) or time.perf_counter() > self.end:
                break
            await asyncio.sleep(0.25)
        writer.transport.abort()

    async def reset(self) -> None:
        _, writer = await self.connect()
        request = self.request()
        writer.write(request[:self.random.randrange(1, len(request) + 1)])
        await asyncio.sleep(self.random.random() / 5)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def garbage(self) -> None:
        reader, writer = await self.connect()
        writer.write(self.random.choice(GARBAGE))
        answer = b""
        try:
            async with asyncio.timeout(1):
                answer = await reader.read(64)
        except TimeoutError:
            pass
        if answer.startswith(b"HTTP/1.1 2") or answer.startswith(b"HTTP/1.1 500"):
            self.unexpected.append("garbage was answered " + repr(answer[:20]))
        writer.transport.abort()

    async def bad_body(self) -> None:
        reader, writer = await self.connect()
        body = self.random.choice(BAD_BODIES)
        writer.write(self.load.server.head("POST", "/v1/completions", len(body)) + body)
        status = await reader.read(12)
        if status and status[9:10] != b"4" and not (b"\xff" in body and status[9:10] == b"2"):
            self.unexpected.append(f"{body[:30]!r} was answered {status!r}")
        writer.transport.abort()

    async def hangup(self) -> None:
        try:
            os.kill(self.pid, signal.SIGHUP)
        except ProcessLookupError:
            self.unexpected.append("the server is gone")


async def run_faults(load: Load, rate: float, warmup: float, seconds: float, pid: int | None,
                     watch: Watch) -> tuple[dict, list[Outcome]]:
    """An open load among faults; the memory of the second and the last quarter are compared."""
    begin = time.perf_counter()
    end = begin + warmup + seconds
    faults = Faults(load, pid, end)
    tasks = faults.tasks()
    outcomes = await load.open(rate, begin, end)
    await asyncio.gather(*tasks)
    level = report.summarize(outcomes, begin + warmup, end, load.slo)
    offset = begin - watch.started
    quarter = lambda n: report.percentile(
        [b for t, b in watch.resident if offset + warmup + n * seconds / 4 <= t < offset + warmup + (n + 1) * seconds / 4], 0.5)
    early, late = quarter(1), quarter(3)
    return {"rate": rate, **level, "faults": faults.counts, "unexpected": faults.unexpected,
            "alive": bool(process_memory(pid)) if pid else None,
            "resident_early": early, "resident_late": late,
            "resident_growth": late / early - 1 if early and late else None}, outcomes
