"""bench/load.py --self-test: its arithmetic on made-up outcomes, and each mode against the stand-in server."""

import contextlib
import io
import json
import os
import random
import re
import tempfile
from pathlib import Path

import load
import load_modes as modes
import load_report as report
from load_client import Chunks, Outcome, parse_metrics
from mock_server import RunningMock


def made(due, first, last, tokens, kind="ok", **more) -> Outcome:
    """At seconds after 100: 0 means that nothing came."""
    at = [100 + time if time or kind == "ok" else 0 for time in (due, first, last)]
    return Outcome(due=at[0], sent=at[0], first=at[1], last=at[2], done=at[2], kind=kind, completion_tokens=tokens,
                   pieces=tokens, finish="stop", **more)


def test_percentiles() -> None:
    values = [float(v) for v in range(1, 101)]
    random.Random(1).shuffle(values)
    assert report.percentile(values, 0.5) == 50 and report.percentile(values, 0.95) == 95
    assert report.percentile([7.0], 0.95) == 7 and report.percentile([], 0.5) is None


def test_rates_count_the_window_alone() -> None:
    slo = {"first_s": 1.0, "token_s": 0.2}
    outcomes = [
        made(-1, 0.0, 2.0, 21),             # half its tokens in [1, 11)
        made(2, 2.5, 4.5, 21),              # within
        made(3, 4.5, 6.0, 16),              # first token late
        made(4, 4.5, 10.5, 21),             # tokens slow: 0.3 s
        made(5, 0, 0, 0, kind="refused"),
        made(10, 10.5, 11.5, 11),           # half inside
        made(20, 21, 22, 9),                # after
    ]
    level = report.summarize(outcomes, 101, 111, slo)
    assert level["requests"] == 5 and level["kinds"] == {"ok": 4, "refused": 1}, level
    assert abs(level["output_tokens_per_s"] - (10.5 + 21 + 16 + 21 + 5.5) / 10) < 1e-9, level
    assert abs(level["goodput_tokens_per_s"] - (10.5 + 21 + 5.5) / 10) < 1e-9, level
    assert abs(level["goodput_requests_per_s"] - 0.2) < 1e-9 and level["slo_met"] == 0.4, level
    assert level["first_token_s"] == {"p50": 0.5, "p95": 1.5, "max": 1.5}, level
    assert abs(level["token_s"]["max"] - 0.3) < 1e-9, level


def test_the_knee() -> None:
    levels = [{"clients": c, "output_tokens_per_s": r} for c, r in [(1, 100), (2, 180), (4, 290), (8, 300), (16, 280)]]
    assert report.knee(levels) == 4 and report.knee([]) is None


def test_chunks_split_anywhere() -> None:
    parts = [b"data: a\n\n", b"x" * 300, b"data: b\n\n"]
    raw = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    for first in range(len(raw)):
        for second in (first, min(len(raw), first + 1), min(len(raw), first + 7)):
            chunks = Chunks()
            got = chunks.feed(raw[:first]) + chunks.feed(raw[first:second]) + chunks.feed(raw[second:])
            assert got == b"".join(parts) and chunks.ended, (first, second)


def test_metrics() -> None:
    text = "# HELP a b\ncarat_prompt_tokens_total 5\na{x=\"1 2\"} 3\na{x=\"2\"} 4.5\n"
    values = parse_metrics(text)
    assert report.total(values, "a") == 7.5 and report.total(values, "b") is None
    ok = [Outcome(prompt_tokens=5, kind="ok")]
    assert report.metrics_check({}, values, ok)[0]["agrees"]
    assert not report.metrics_check({"carat_prompt_tokens_total": 1.0}, values, ok)[0]["agrees"]
    assert report.metrics_check({}, {"carat_prompt_tokens_total": 6.0}, [*ok, Outcome(kind="vanished")])[0]["agrees"]


def test_lengths_of_a_trace() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.csv"
        rows = [f"2023-11-16 18:15:46.6,{40 * i},{10 * i}" for i in range(1, 101)]
        file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
        lengths = modes.Lengths.trace(file, 495, None, 1)
    assert lengths.pairs[0] == (4, 1) and lengths.pairs[98] == (396, 99), lengths.pairs  # 99th: 4950 tokens, times 0.1
    assert all(p + o <= 495 for p, o in lengths.pairs) and "0.100" in lengths.rule


def run(server: RunningMock, *arguments: str, fails: bool = False) -> dict:
    """The report of the program itself, its exit code checked."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        argv = [arguments[0], "--url", server.url, "--json", str(file), "--markdown", str(Path(folder) / "t.md"),
                "--warmup", "0", *arguments[1:]]
        errors = io.StringIO()
        parsed = load.parse(argv)
        original, load.parse = load.parse, lambda: parsed
        try:
            with contextlib.redirect_stderr(errors):
                code = load.main()
        finally:
            load.parse = original
        assert code == int(fails), (argv, errors.getvalue())
        assert (Path(folder) / "t.md").read_text().count("|") > 10
        return {**json.loads(file.read_text()), "errors": errors.getvalue()}


def test_closed_and_counts() -> None:
    with RunningMock(token_s=0.002) as server:
        result = run(server, "sweep", "--clients", "1,4", "--seconds", "0.6", "--output", "10", "--prompt", "30",
                     "--pid", str(os.getpid()))
        one, four = result["levels"]
        assert one["kinds"].keys() == {"ok"} and four["requests"] > one["requests"] > 3, result
        assert four["output_tokens_per_s"] > 1.5 * one["output_tokens_per_s"] and result["knee"] == 4, result
        assert {check["what"] for check in result["metrics"]} == {"prompt_tokens", "cached_tokens", "completion_tokens"}
        assert all(check["agrees"] for check in result["metrics"]), result["metrics"]
        body = server.mock.seen[0]
        assert len(body["prompt"]) == 30 and body["prompt"][0] == 2 and body["temperature"] == 0, body
        assert body["prompt"] != server.mock.seen[1]["prompt"]
        assert result["watch"]["health_asked"] > 2 and result["watch"]["peak_bytes"] > 0
        # What the server miscounts is found.
        original = server.mock.metrics
        server.mock.metrics = lambda: re.sub(r"(prompt_tokens_total) (\d+)", lambda m: f"{m[1]} {2 * int(m[2])}", original())
        assert "FAILED: /metrics prompt_tokens" in run(server, "closed", "--clients", "1", "--seconds", "0.2",
                                                      fails=True)["errors"]


def test_open_arrivals() -> None:
    with RunningMock(token_s=0.001) as server:
        level = run(server, "open", "--rate", "60", "--seconds", "1.5", "--output", "4")["levels"][0]
        assert 55 <= level["requests"] <= 130, level  # 90 expected, standard deviation 9.5; the seed is fixed
        assert level["first_token_s"]["p50"] > 0.001 and level["sent_late_s"]["p50"] < level["first_token_s"]["p50"]


def test_refusals_are_counted_and_failures_found() -> None:
    with RunningMock(token_s=0.01, most_running=2) as server:
        level = run(server, "closed", "--clients", "4", "--seconds", "0.8", "--output", "8")["levels"][0]
        assert level["kinds"]["refused"] >= 2 and level["kinds"]["ok"] >= 4, level
        result = run(server, "closed", "--clients", "1", "--seconds", "0.3", "--prompt", "5000", fails=True)
        assert "FAILED: a request ended with: status 400" in result["errors"], result["errors"]
        assert "past the budget" in run(server, "closed", "--clients", "1", "--seconds", "0.3", "--pid",
                                        str(os.getpid()), "--budget", "1000", fails=True)["errors"]


def test_vanish() -> None:
    with RunningMock(token_s=0.002) as server:
        result = run(server, "vanish", "--count", "60", "--at-once", "20")["vanish"]
        assert result["kinds"] == {"vanished": 60} and result["normal_request_after"] == "ok", result
        assert result["pages_left_behind"] == 0 and server.mock.counts.vanished > 30, (result, server.mock.counts)
        # A server that forgets to free.
        original = server.mock.metrics
        leak = lambda: original().replace("carat_kv_pages_free 256", f"carat_kv_pages_free {256 - len(server.mock.seen)}")
        server.mock.metrics = leak
        assert "pages left behind" in run(server, "vanish", "--count", "10", fails=True)["errors"]


def test_interference() -> None:
    with RunningMock(token_s=0.001, prefill_s=0.0005) as server:
        result = run(server, "interference", "--rate", "20", "--seconds", "0.8", "--long", "400,4",
                     "--short", "8,4")["interference"]
        assert result["long_prompts"] >= 2 and result["first_token_p95_ratio"] > 0, result
        assert result["phases"]["alone"]["requests"] > 5 and result["long_prefill_tokens_per_s"]["p50"] > 100, result


def test_turns() -> None:
    with RunningMock(token_s=0.0005) as server, tempfile.TemporaryDirectory() as folder:
        answers = str(Path(folder) / "answers.json")
        common = ["--conversations", "4", "--turns", "3", "--output", "6", "--system-words", "50"]
        first = run(server, "turns", *common, "--save", answers)["turns"]
        assert first["kinds"] == {"ok": 12} and 0.2 < first["cached_share"] < 1, first
        roles = [[m["role"] for m in body["messages"]] for body in server.mock.seen]
        assert ["system", "user", "assistant", "user", "assistant", "user"] in roles
        again = run(server, "turns", *common, "--script", answers)["turns"]
        assert again["same_answers"] == again["compared_answers"] == 12, again
        plain = run(server, "turns", *common, "--completions")["turns"]
        assert plain["kinds"] == {"ok": 12} and "User: [" in server.mock.seen[-1]["prompt"], plain


def test_faults() -> None:
    with RunningMock(token_s=0.002) as server:
        result = run(server, "faults", "--rate", "10", "--seconds", "2", "--output", "5")["faults"]
        assert result["kinds"].keys() == {"ok"} and result["unexpected"] == [], result
        assert all(count > 0 for what, count in result["faults"].items() if what != "hangups"), result


def test_compare_table() -> None:
    level = {"goodput_requests_per_s": 3.0, "output_tokens_per_s": 100.0, "first_token_s": {"p95": 0.5}, "clients": 4}
    slower = {**level, "goodput_requests_per_s": 1.5}
    settings = {"lengths": "128 and 64", "seconds": 30.0, "slo": {"first_s": 2.0, "token_s": 0.1}}
    text = load.compare_markdown({"model": "m.gguf", "rounds": {
        "carat": [{"levels": [level], "settings": settings}], "llama-server": [{"levels": [slower], "settings": settings}]}})
    assert "| 4 | 3.000 | 1.500 |" in text and text.rstrip().endswith("| 2.00 |"), text


def main() -> int:
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    for test in tests:
        test()
    print(f"{len(tests)} passed, 0 failed")
    return 0
