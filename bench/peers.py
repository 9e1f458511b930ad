#!/usr/bin/env python3
"""carat and llama.cpp in turns, on the same files, threads and CPUs.

    bench/peers.py --setup                            # once: builds llama-cpp-python for this CPU
    bench/peers.py MODEL.gguf MORE.gguf               # table on stderr, JSON on stdout
    bench/peers.py MODEL.gguf --prefill 16,33,65,512,2048 --depth 0,4096 --rounds 7 --markdown table.md

Models that are not at hand are written with random weights of their true shapes, tokenizer from any file:

    build/random_model gemma3-270m.gguf gemma3-1b-q4_0.gguf --arch gemma3-1b --quant q4_0

Each round runs both programs on every file, each in a process of its own, and swaps their order; the
machine's drift so falls on both. A round's figure is the median of its repetitions; the table shows the
median over the rounds, their least and greatest, and the same of the rounds' ratios.

prefill  tokens/s of one prompt of each of --prefill ids appended at each --depth, logits of the last only
decode   tokens/s of --generate single steps at each --depth, no sampling counted

carat is asked by `carat bench --json`. llama.cpp: weights mapped as it does by default, flash attention
auto, F16 KV unless --llama-kv.
"""

import argparse
import ctypes
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

PACKAGE = "llama-cpp-python==0.3.36"
CMAKE_ARGUMENTS = (
    "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF "
    "-DLLAMA_BUILD_TOOLS=OFF -DLLAMA_CURL=OFF"
)
LLAMA_KV = {"f16": 1, "f32": 0, "bf16": 30, "q8_0": 8}  # ggml_type


# --- llama.cpp ----------------------------------------------------------------------------


def default_peers() -> Path:
    return Path(os.environ.get("CARAT_PEERS", Path.home() / ".cache/carat/peers"))


def setup(folder: Path, jobs: int) -> None:
    """A virtual environment with llama-cpp-python built from source for this CPU."""
    place = folder / "llama-cpp"
    venv.create(place, with_pip=True)
    environment = {**os.environ, "CMAKE_ARGS": CMAKE_ARGUMENTS, "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    pip = [str(place / "bin/python"), "-m", "pip", "install"]
    subprocess.run([*pip, "--no-binary", "llama-cpp-python", PACKAGE, "numpy"], env=environment, check=True)
    print(f"built {PACKAGE} in {place}", file=sys.stderr)


class LlamaContext:
    """The few calls of llama.h that a measurement needs."""

    def __init__(self, model: str, context_length: int, threads: int, kv: str):
        import llama_cpp as api

        self.api = api
        api.llama_backend_init()
        quiet = api.llama_log_callback(lambda level, text, data: None)
        self.keep = quiet  # the callback must outlive this call
        api.llama_log_set(quiet, ctypes.c_void_p(0))
        model_parameters = api.llama_model_default_params()
        model_parameters.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(model.encode(), model_parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {model}")
        parameters = api.llama_context_default_params()
        parameters.n_ctx = context_length
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.type_k = parameters.type_v = LLAMA_KV[kv]
        self.context = api.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise SystemExit("llama.cpp cannot make the context")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.state = 12345

    def ids(self, count: int):
        """Ids spread over the vocabulary, the same in every run."""
        values = []
        for _ in range(count):
            self.state = (self.state * 1103515245 + 12345) % 2**31
            values.append(3 + self.state % (self.vocab - 3))
        return (self.api.llama_token * count)(*values)

    def clear(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def feed(self, ids) -> None:
        """Evaluates `ids` (at most 512 in one call) and waits."""
        for begin in range(0, len(ids), 512):
            part = (self.api.llama_token * min(512, len(ids) - begin))(*ids[begin : begin + 512])
            if self.api.llama_decode(self.context, self.api.llama_batch_get_one(part, len(part))):
                raise SystemExit("llama_decode failed")
        self.api.llama_synchronize(self.context)


def llama_worker(arguments) -> None:
    """Runs inside the peer's environment; prints results in carat's form."""
    longest = max([*arguments.prefill, arguments.generate])
    length = max(arguments.depth) + longest + 8
    llama = LlamaContext(str(arguments.models[0]), length, arguments.threads, arguments.llama_kv)
    llama.feed(llama.ids(longest))  # warm-up: pages in, threads up
    results = []
    for depth in arguments.depth:
        if "prefill" in arguments.only:
            for tokens in arguments.prefill:
                rates = [llama_prefill(llama, tokens, depth) for _ in range(arguments.repetitions)]
                results.append({"kind": "prefill", "tokens": tokens, "depth": depth, "tokens_per_s": summary(rates)})
        if "decode" in arguments.only:
            rates = [llama_decode(llama, arguments.generate, depth) for _ in range(arguments.repetitions)]
            results.append({"kind": "decode", "tokens": arguments.generate, "depth": depth,
                            "tokens_per_s": summary(rates)})
    print(json.dumps({"results": results}))


def llama_prefill(llama: LlamaContext, tokens: int, depth: int) -> float:
    llama.clear()
    if depth:
        llama.feed(llama.ids(depth))
    prompt = llama.ids(tokens)
    started = time.perf_counter()
    llama.feed(prompt)
    return tokens / (time.perf_counter() - started)


def llama_decode(llama: LlamaContext, steps: int, depth: int) -> float:
    llama.clear()
    llama.feed(llama.ids(depth or 1))
    ids = [llama.ids(1) for _ in range(steps)]
    started = time.perf_counter()
    for step in ids:
        llama.feed(step)
    return steps / (time.perf_counter() - started)


# --- rounds -------------------------------------------------------------------------------


def joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def carat_results(arguments, model: Path) -> list[dict]:
    command = [
        str(arguments.carat), "bench", str(model), "--json", "-q", "--only", ",".join(arguments.only),
        "--tokens", joined(arguments.prefill), "--depth", joined(arguments.depth),
        "--repeat", str(arguments.repetitions), "--threads", str(arguments.threads), *shlex.split(arguments.flags),
    ]
    return json.loads(run(arguments, command).stdout)["results"]


def llama_results(arguments, model: Path) -> list[dict]:
    command = [
        str(arguments.llama_python), str(Path(__file__).resolve()), "--llama-worker", str(model),
        "--prefill", joined(arguments.prefill), "--generate", str(arguments.generate),
        "--depth", joined(arguments.depth), "--threads", str(arguments.threads), "--only", ",".join(arguments.only),
        "--repetitions", str(arguments.repetitions), "--llama-kv", arguments.llama_kv,
    ]
    return json.loads(run(arguments, command).stdout)["results"]


def summary(samples: list[float]) -> dict:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def run(arguments, command: list[str], check: bool = True) -> subprocess.CompletedProcess:
    """Runs a command on the chosen CPUs only."""
    cpus = arguments.cpu_list
    done = subprocess.run(command, capture_output=True, text=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    if check and done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)[:300]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done


SIDES = [("carat", carat_results), ("llama.cpp", llama_results)]


def compare(arguments, sides=SIDES) -> dict:
    before = machine(arguments)
    if before["load_before"] > 0.5:
        print(f"load average {before['load_before']}: other programs run, the figures will be low and "
              "unfair to the side that waits in barriers", file=sys.stderr)
    rounds: dict[tuple, dict[str, list[float]]] = {}
    for number in range(arguments.rounds):
        for place, model in enumerate(arguments.models):
            for name, measure in sides if number % 2 == 0 else sides[::-1]:
                for result in measure(arguments, model):
                    # The steps of decode are each side's own; a rate does not depend on them.
                    tokens = result["tokens"] if result["kind"] == "prefill" else 0
                    key = (place, result["depth"], result["kind"], tokens)
                    rounds.setdefault(key, {}).setdefault(name, []).append(result["tokens_per_s"]["median"])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    results = []
    for (place, depth, kind, tokens), by_name in sorted(rounds.items()):
        ratios = [a / b for a, b in zip(by_name["carat"], by_name["llama.cpp"], strict=True)]
        results.append({
            "model": arguments.models[place].name, "kind": kind, "tokens": tokens or None, "depth": depth,
            **{name: {**summary(values), "rounds": values} for name, values in by_name.items()},
            "ratio": {**summary(ratios), "rounds": ratios},
        })
    return {"machine": before, "settings": settings(arguments), "results": results}


def machine(arguments) -> dict:
    name = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return {"cpu": name, "cpus": sorted(arguments.cpu_list), "threads": arguments.threads,
            "load_before": round(os.getloadavg()[0], 2)}


def settings(arguments) -> dict:
    return {
        "models": [model.name for model in arguments.models], "prefill": arguments.prefill,
        "depth": arguments.depth, "generate": arguments.generate, "rounds": arguments.rounds,
        "repetitions": arguments.repetitions, "carat_flags": arguments.flags, "llama": PACKAGE,
        "llama_kv": arguments.llama_kv,
    }


def rows_of(report: dict) -> list[list[str]]:
    rows = []
    for result in report["results"]:
        what = result["kind"] if result["tokens"] is None else f"{result['kind']} {result['tokens']}"
        row = [result["model"], what, str(result["depth"])]
        for name, digits in (("carat", 1), ("llama.cpp", 1), ("ratio", 2)):
            value = result[name]
            row.append(f"{value['median']:.{digits}f} [{value['min']:.{digits}f}, {value['max']:.{digits}f}]")
        rows.append(row)
    return rows


COLUMNS = ["file", "what", "depth", "carat", "llama.cpp", "ratio"]


def title(report: dict) -> str:
    return (f"{report['machine']['cpu']}, {report['machine']['threads']} threads; tokens/s, median [least, greatest] "
            f"over {report['settings']['rounds']} rounds")


def plain_table(report: dict) -> str:
    rows = [COLUMNS, *rows_of(report)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([title(report), *lines])


def markdown_table(report: dict) -> str:
    rows = [COLUMNS, ["---"] * len(COLUMNS), *rows_of(report)]
    return "\n".join([title(report), "", *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL")
    parser.add_argument("--carat", type=Path, default=Path("build/carat"))
    parser.add_argument("--flags", default="", help="more options for carat, one string")
    parser.add_argument("--only", default="prefill,decode", help="one of the two")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="within a round")
    parser.add_argument("--prefill", type=numbers, default=[512], help="prompt lengths, e.g. 16,33,65,512,2048")
    parser.add_argument("--generate", type=int, default=64, help="decode steps")
    parser.add_argument("--depth", type=numbers, default=[0], help="tokens already in the cache, e.g. 0,4096")
    parser.add_argument("--threads", type=int, help="default: one a chosen CPU")
    parser.add_argument("--cpus", help="e.g. 0,1 (default: all this process may use)")
    parser.add_argument("--llama-kv", choices=LLAMA_KV, default="f16")
    parser.add_argument("--llama-python", type=Path, help="Python that has llama_cpp (default: of --setup)")
    parser.add_argument("--peers", type=Path, default=default_peers(), help="where --setup builds")
    parser.add_argument("--json", type=Path, help="write the JSON there instead of to stdout")
    parser.add_argument("--markdown", type=Path, help="also write a table there")
    parser.add_argument("--setup", action="store_true", help="build the peer and stop")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers of --setup")
    parser.add_argument("--self-test", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--llama-worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.cpu_list = (
        set(numbers(arguments.cpus)) if arguments.cpus else os.sched_getaffinity(0)
    )
    arguments.threads = arguments.threads or len(arguments.cpu_list)
    arguments.llama_python = arguments.llama_python or arguments.peers / "llama-cpp/bin/python"
    arguments.only = arguments.only.split(",")
    if not set(arguments.only) <= {"prefill", "decode"}:
        parser.error("--only: expected prefill, decode or both")
    if not (arguments.setup or arguments.self_test or arguments.models):
        parser.error("give a model")
    return arguments


def self_test() -> None:
    """Two sides that are not there: who is asked when, and what is made of their answers."""
    calls = []

    def side(name, rate):
        def measure(_, model):
            calls.append((name, model.name))
            # Each call is faster than the one before, so that a round's figures must meet in one ratio.
            kinds = [("prefill", 16), ("prefill", 512), ("decode", 64 if name == "carat" else 8)]
            return [{"kind": kind, "tokens": tokens, "depth": 0, "tokens_per_s": {"median": rate * len(calls)}}
                    for kind, tokens in kinds]
        return name, measure

    arguments = argparse.Namespace(
        models=[Path("x/a.gguf"), Path("b.gguf")], rounds=2, prefill=[16, 512], depth=[0], generate=8,
        repetitions=1, flags="", llama_kv="f16", threads=2, cpu_list={0, 1})
    report = compare(arguments, [side("carat", 6.0), side("llama.cpp", 2.0)])
    assert calls == [("carat", "a.gguf"), ("llama.cpp", "a.gguf"), ("carat", "b.gguf"), ("llama.cpp", "b.gguf"),
                     ("llama.cpp", "a.gguf"), ("carat", "a.gguf"), ("llama.cpp", "b.gguf"), ("carat", "b.gguf")], calls
    assert len(report["results"]) == 6
    decode = report["results"][0]
    assert (decode["model"], decode["kind"], decode["tokens"]) == ("a.gguf", "decode", None), decode
    # Calls 1 and 6 of carat, 2 and 5 of the other.
    assert decode["carat"]["rounds"] == [6, 36] and decode["llama.cpp"]["rounds"] == [4, 10], decode
    assert decode["ratio"]["min"] == 1.5 and decode["ratio"]["max"] == 3.6, decode
    assert abs(decode["ratio"]["median"] - 2.55) < 1e-9, decode
    rows = [line for line in markdown_table(report).splitlines() if line.startswith("| ")]
    assert len(rows) == 8 and all(row.count("|") == 7 for row in rows), rows
    assert "| a.gguf | prefill 512 | 0 |" in markdown_table(report)
    assert len(plain_table(report).splitlines()) == 8
    json.dumps(report)


def main() -> None:
    arguments = parse()
    if arguments.self_test:
        return self_test()
    if arguments.setup:
        return setup(arguments.peers, arguments.jobs)
    if arguments.llama_worker:
        return llama_worker(arguments)
    if not arguments.llama_python.exists():
        raise SystemExit(f"{arguments.llama_python} is missing: run bench/peers.py --setup")
    if not shutil.which(str(arguments.carat)):
        raise SystemExit(f"{arguments.carat} cannot be run")
    report = compare(arguments)
    print(plain_table(report), file=sys.stderr)
    if arguments.markdown:
        arguments.markdown.write_text(markdown_table(report))
    text = json.dumps(report, indent=1) + "\n"
    if arguments.json:
        arguments.json.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
