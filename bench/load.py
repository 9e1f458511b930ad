#!/usr/bin/env python3
"""Load for a server with OpenAI's completions: carat's, or llama.cpp's for comparison.

    bench/load.py closed --url http://127.0.0.1:8080 --pid PID --clients 1,8
    bench/load.py sweep --spawn "build/carat serve gemma3-270m --memory 2G --port {port}" --json sweep.json
    bench/load.py open --url … --rate 0.5,1,2 --trace AzureLLMInferenceTrace_conv.csv
    bench/load.py compare gemma3-270m.gguf --clients 1,2,4,8,16 --markdown compare.md

open          Poisson arrivals at each --rate, lengths of --trace or fixed; latency counts from when a request was due
closed        --clients that each ask again as soon as they are answered
sweep         closed with 1 to 64 clients, and the knee: the fewest clients within 5% of the most tokens a second
vanish        --count clients that leave mid-stream; then nothing may run, and no page be held
interference  short requests alone, then beside 16K-token prompts: ratios of time to first token and a token
turns         conversations with one system text: share of cached prompt tokens; --save and --script compare answers
faults        an open load among slow readers, resets, garbage, bad bodies and SIGHUP; memory early and late
compare       a sweep of carat and of llama.cpp's llama-server (bench/build_llama_server.sh), in turns

Goodput counts requests whose first token comes within --slo-first and whose tokens take at most --slo-token each, from
the second on. A table goes to stderr, JSON to stdout or --json; what a spawned server says goes to the file $LOAD_LOG. Exit code 1: a check failed (a request neither
answered nor refused, memory past the budget, counts of /metrics that differ, a page left behind).
"""

import argparse
import asyncio
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import load_modes as modes
import load_report as report
from load_client import Server, Watch

SWEEP = [1, 2, 4, 8, 16, 32, 64]
PEER = Path(os.environ.get("CARAT_PEERS", Path.home() / ".cache/carat/peers")) / "llama-server"


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def pair(text: str) -> tuple[int, int]:
    prompt, output = text.split(",")
    return int(prompt), int(output)


def parse(argv=None) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False)
    where = common.add_argument_group("server")
    where.add_argument("--url", help="http://HOST:PORT of one that runs")
    where.add_argument("--spawn", help="command that starts one; {port} becomes a free port")
    where.add_argument("--pid", type=int, help="its process, on this machine; known with --spawn")
    where.add_argument("--budget", type=int, help="bytes it may use (default: of its /plan)")
    where.add_argument("--key", default="")
    where.add_argument("--ctx", type=int, help="tokens a request may have (default: what the server says)")
    ask = common.add_argument_group("requests")
    ask.add_argument("--prompt", type=int, default=128, help="tokens")
    ask.add_argument("--output", type=int, default=64, help="tokens at most")
    ask.add_argument("--trace", type=Path, help="draw both from ContextTokens and GeneratedTokens of this CSV")
    ask.add_argument("--scale", type=float, help="factor on a trace's lengths")
    ask.add_argument("--text", type=Path, help="cut prompts from this text (default: the project's documents)")
    ask.add_argument("--temperature", type=float, default=0)
    ask.add_argument("--fields", type=json.loads, default={}, help="more fields of each request, as JSON")
    ask.add_argument("--timeout", type=float, default=120, help="seconds a request")
    ask.add_argument("--seed", type=int, default=1)
    time_ = common.add_argument_group("measuring")
    time_.add_argument("--seconds", type=float, default=30, help="of each level or phase")
    time_.add_argument("--warmup", type=float, default=3, help="seconds before, not counted")
    time_.add_argument("--slo-first", type=float, default=2.0, help="seconds to the first token")
    time_.add_argument("--slo-token", type=float, default=0.1, help="seconds a token")
    time_.add_argument("--json", type=Path)
    time_.add_argument("--markdown", type=Path)
    time_.add_argument("--outcomes", type=Path, help="also write each request as a line of JSON")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="mode", metavar="MODE")
    add = lambda name: commands.add_parser(name, parents=[common])
    add("open").add_argument("--rate", type=numbers(float), default=[1.0], help="requests a second, e.g. 0.5,1,2")
    for name, clients in (("closed", [1, 8]), ("sweep", SWEEP), ("compare", [1, 2, 4, 8, 16])):
        add(name).add_argument("--clients", type=numbers(int), default=clients, help="e.g. 1,8")
    vanish = add("vanish")
    vanish.add_argument("--count", type=int, default=1000)
    vanish.add_argument("--at-once", type=int, default=32)
    interference = add("interference")
    interference.add_argument("--rate", type=float, default=1.0, help="short requests a second")
    interference.add_argument("--short", type=pair, default=(64, 16), help="prompt,answer tokens")
    interference.add_argument("--long", type=pair, default=(16000, 16))
    turns = add("turns")
    turns.add_argument("--conversations", type=int, default=20)
    turns.add_argument("--turns", type=int, default=8)
    turns.add_argument("--at-once", type=int, default=4)
    turns.add_argument("--system-words", type=int, default=300)
    turns.add_argument("--user-words", type=int, default=40)
    turns.add_argument("--completions", action="store_true", help="plain text, for models without a chat template")
    turns.add_argument("--save", type=Path, help="write the answers")
    turns.add_argument("--script", type=Path, help="answers of an earlier run: put them into the history and compare")
    add("faults").add_argument("--rate", type=float, default=1.0)
    compare = commands.choices["compare"]
    compare.add_argument("model", type=Path)
    compare.add_argument("--carat", type=Path, default=Path("build/carat"))
    compare.add_argument("--llama-server", type=Path, default=PEER)
    compare.add_argument("--parallel", type=int, default=8)
    compare.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    compare.add_argument("--memory", default="2G", help="carat's budget")
    compare.add_argument("--flags", default="", help="more options for carat, one string")
    compare.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args(argv)
    if not arguments.self_test:
        if not arguments.mode:
            parser.error("give a mode: " + ", ".join(commands.choices))
        if arguments.mode != "compare" and bool(arguments.url) == bool(arguments.spawn):
            parser.error("give --url or --spawn")
    return arguments


# --- servers --------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Spawned:
    """A server process, from when its /health answers 200 to the end of the block."""

    def __init__(self, command: str):
        self.port = free_port()
        self.command = shlex.split(command.replace("{port}", str(self.port)))

    def __enter__(self):
        self.start()
        return self

    def start(self) -> None:
        """Also again, after it ended."""
        with open(os.environ.get("LOAD_LOG", os.devnull), "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        server = Server(f"http://127.0.0.1:{self.port}")
        end = time.monotonic() + 120
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"{shlex.join(self.command)} ended with {self.process.returncode}")
            try:
                if server.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"{self.command[0]} does not answer /health")
            time.sleep(0.1)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def optional(server: Server, path: str) -> dict:
    try:
        return server.json("GET", path) or {}
    except ValueError:
        return {}


def context_of(server: Server, arguments) -> int:
    if arguments.ctx:
        return arguments.ctx
    models = optional(server, "/v1/models").get("data") or [{}]
    said = models[0].get("context") or optional(server, "/props").get("default_generation_settings", {}).get("n_ctx")
    return said or 2048


def make_load(server: Server, arguments) -> modes.Load:
    context = context_of(server, arguments)
    if arguments.trace:
        lengths = modes.Lengths.trace(arguments.trace, context, arguments.scale, arguments.seed)
    else:
        lengths = modes.Lengths.fixed(arguments.prompt, arguments.output)
    text = arguments.text.read_text(errors="replace") if arguments.text else modes.default_text()
    return modes.Load(server, modes.Corpus(server, text, arguments.seed), lengths,
                      {"first_s": arguments.slo_first, "token_s": arguments.slo_token},
                      {"temperature": arguments.temperature, **arguments.fields}, arguments.seed)


# --- running --------------------------------------------------------------------------------


async def run_mode(load: modes.Load, arguments, watch: Watch):
    """The mode's part of the report, and every outcome."""
    a = arguments
    if a.mode == "open":
        levels, outcomes = await modes.run_open(load, a.rate, a.warmup, a.seconds)
        return {"levels": levels}, outcomes
    if a.mode in ("closed", "sweep", "compare"):
        levels, outcomes = await modes.run_closed(load, a.clients, a.warmup, a.seconds)
        return {"levels": levels, "knee": report.knee(levels)}, outcomes
    if a.mode == "vanish":
        result, outcomes = await modes.run_vanish(load, a.count, a.at_once)
    elif a.mode == "interference":
        result, outcomes = await modes.run_interference(load, a.rate, a.short, a.long, a.warmup, a.seconds)
    elif a.mode == "turns":
        script = json.loads(a.script.read_text()) if a.script else None
        result, outcomes, answers = await modes.run_turns(
            load, a.conversations, a.turns, a.at_once, a.system_words, a.user_words, a.output, not a.completions, script)
        if a.save:
            a.save.write_text(json.dumps(answers, indent=1) + "\n")
    else:
        result, outcomes = await modes.run_faults(load, a.rate, a.warmup, a.seconds, watch.pid, watch)
    return {a.mode: result}, outcomes


def measure(server: Server, pid: int | None, arguments) -> dict:
    plan = optional(server, "/plan")
    budget = arguments.budget or plan.get("budget")
    load = make_load(server, arguments)
    before = server.metrics()
    with Watch(server, pid) as watch:
        result, outcomes = asyncio.run(run_mode(load, arguments, watch))
    after = report.wait_idle(server, 30)
    if arguments.outcomes:
        with arguments.outcomes.open("a") as lines:
            lines.writelines(json.dumps(outcome.as_dict()) + "\n" for outcome in outcomes)
    # Faults and vanished clients ask what nobody counts.
    checks = [] if arguments.mode == "faults" else report.metrics_check(before, after, outcomes)
    kinds = {o.kind for o in outcomes}
    return {"mode": arguments.mode, "machine": {"cpu": cpu(), "cpus": sorted(os.sched_getaffinity(0))},
            "settings": {"lengths": load.lengths.rule, "slo": load.slo, "sampling": load.sampling,
                         "seconds": arguments.seconds, "warmup": arguments.warmup, "seed": arguments.seed},
            **result, "watch": report.watched(watch, budget), "metrics": checks, "kinds": sorted(kinds)}


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def failures(result: dict) -> list[str]:
    """What may not happen under any load."""
    found = [f"a request ended with: {kind}" for kind in result["kinds"] if kind not in ("ok", "refused", "vanished")]
    if result["watch"]["within_budget"] is False:
        found.append(f"memory {result['watch']['peak_bytes']} is past the budget {result['watch']['budget_bytes']}")
    if result["watch"]["health_failures"]:
        found.append(f"/health failed: {result['watch']['health_failures']}")
    found += [f"/metrics {c['what']}: {c['server']:.0f}, counted {c['client']}" for c in result["metrics"]
              if not c["agrees"]]
    vanish = result.get("vanish", {})
    if vanish.get("pages_left_behind"):
        found.append(f"{vanish['pages_left_behind']:.0f} pages left behind")
    if vanish and vanish["normal_request_after"] != "ok":
        found.append("the request after the vanished ones: " + vanish["normal_request_after"])
    found += result.get("faults", {}).get("unexpected", [])
    return found


def run_one(arguments) -> dict:
    if arguments.spawn:
        with Spawned(arguments.spawn) as spawned:
            server = Server(f"http://127.0.0.1:{spawned.port}", arguments.key, arguments.timeout)
            return measure(server, spawned.process.pid, arguments)
    return measure(Server(arguments.url, arguments.key, arguments.timeout), arguments.pid, arguments)


def run_compare(arguments) -> dict:
    """Each round measures both, and swaps their order."""
    context = arguments.ctx or 2048
    commands = {
        "carat": f"{arguments.carat} serve {arguments.model} --memory {arguments.memory} --parallel {arguments.parallel} "
                 f"--ctx {context} --threads {arguments.threads} --port {{port}} {arguments.flags}",
        "llama-server": f"{arguments.llama_server} -m {arguments.model} -np {arguments.parallel} "
                        f"-c {context * arguments.parallel} -t {arguments.threads} -tb {arguments.threads} "
                        f"--host 127.0.0.1 --port {{port}}",
    }
    rounds: dict[str, list[dict]] = {name: [] for name in commands}
    for number in range(arguments.rounds):
        for name in list(commands)[:: 1 if number % 2 == 0 else -1]:
            arguments.spawn = commands[name]
            budget, arguments.budget = arguments.budget, None
            rounds[name].append(run_one(arguments))
            arguments.budget = budget
            print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr, flush=True)
    return {"mode": "compare", "model": arguments.model.name, "commands": commands, "rounds": rounds}


# --- showing --------------------------------------------------------------------------------


def compare_markdown(result: dict) -> str:
    names = list(result["rounds"])
    columns = ["clients", *(f"{name} {what}" for what in ("goodput req/s", "tokens/s", "first p95 s") for name in names),
               "goodput ratio"]
    median = lambda values: report.percentile([v for v in values if v is not None], 0.5)
    rows = []
    for place, level in enumerate(result["rounds"][names[0]][0]["levels"]):
        of = lambda name, key: median([key(run["levels"][place]) for run in result["rounds"][name]])
        goodput = [of(name, lambda l: l["goodput_requests_per_s"]) for name in names]
        rate = [of(name, lambda l: l["output_tokens_per_s"]) for name in names]
        first = [of(name, lambda l: l["first_token_s"]["p95"]) for name in names]
        ratio = goodput[0] / goodput[1] if goodput[1] else None
        rows.append([str(level["clients"]), *(report.shown(v) for v in [*goodput, *rate, *first]), report.shown(ratio, 2)])
    settings = result["rounds"][names[0]][0]["settings"]
    return f"{result['model']}: {title(settings)}\n\n" + report.table(columns, rows)


def title(settings: dict) -> str:
    slo = settings["slo"]
    return (f"{settings['lengths']}; {settings['seconds']:g} s a level; goodput: first token within {slo['first_s']:g} s, "
            f"then at most {1000 * slo['token_s']:g} ms a token")


def markdown(result: dict) -> str:
    if result["mode"] == "compare":
        return compare_markdown(result)
    parts = [title(result["settings"]) + "\n"]
    if "levels" in result:
        name = "rate" if result["mode"] == "open" else "clients"
        parts.append(report.table(report.COLUMNS, [report.row(f"{level[name]} {name}", level) for level in result["levels"]]))
        if result.get("knee"):
            parts.append(f"Knee: {result['knee']} clients.\n")
    elif result["mode"] == "interference":
        phases = result["interference"]["phases"]
        parts.append(report.table(report.COLUMNS, [report.row(n.replace("_", " "), p) for n, p in phases.items()]))
        parts.append(f"First token P95 {report.shown(result['interference']['first_token_p95_ratio'], 2)} times, a token "
                     f"P50 {report.shown(result['interference']['token_p50_ratio'], 2)} times; "
                     f"{result['interference']['long_prompts']} long prompts.\n")
    else:
        some = result[result["mode"]]
        if "token_s" in some:
            parts.append(report.table(report.COLUMNS, [report.row(result["mode"], some)]))
        flat = {k: v for k, v in some.items() if not isinstance(v, dict) or k in ("kinds", "faults", "gauges")}
        parts.append(report.table(["what", "value"], [[k, report.shown(v)] for k, v in flat.items()]))
    return "\n".join([*parts, report.watch_text(result)])


def main() -> int:
    arguments = parse()
    if arguments.self_test:
        import load_test
        return load_test.main()
    result = run_compare(arguments) if arguments.mode == "compare" else run_one(arguments)
    print(markdown(result), file=sys.stderr)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(result))
    text = json.dumps(result, indent=1) + "\n"
    if arguments.json:
        arguments.json.write_text(text)
    else:
        sys.stdout.write(text)
    found = failures(result) if arguments.mode != "compare" else []
    for line in found:
        print("FAILED: " + line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
