#!/usr/bin/env python3
"""carat and llama.cpp in turns, on the same file, threads and CPUs.

    bench/peers.py --setup                          # once: builds llama-cpp-python for this CPU
    bench/peers.py --carat build/carat MODEL.gguf   # table on stderr, JSON on stdout
    bench/peers.py --carat build/carat MODEL.gguf --depth 0,4096 --rounds 7

Each round runs both programs, each in a process of its own, and swaps their order; the machine's
drift so falls on both. A round's figure is the median of its repetitions; the table shows the
median over the rounds, their least and greatest, and the median of the rounds' ratios.

prefill  tokens/s of one prompt of --tokens ids appended at --depth, logits of the last only
decode   tokens/s of --generate single steps at --depth, no sampling counted for llama.cpp

carat is asked by `carat bench --json`; a carat without it by `carat run --json` (depth 0 only).
llama.cpp: weights mapped as it does by default, flash attention auto, F16 KV unless --llama-kv.
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
SENTENCE = "The quick brown fox jumps over the lazy dog while the old clock strikes seven. "


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
    depths = parse_depths(arguments.depth)
    length = max(depths) + arguments.tokens + arguments.generate + 8
    llama = LlamaContext(str(arguments.model), length, arguments.threads, arguments.llama_kv)
    llama.feed(llama.ids(arguments.tokens))  # warm-up: pages in, threads up
    results = []
    for depth in depths:
        rates = {"prefill": [], "decode": []}
        for _ in range(arguments.repetitions):
            llama.clear()
            if depth:
                llama.feed(llama.ids(depth))
            prompt = llama.ids(arguments.tokens)
            started = time.perf_counter()
            llama.feed(prompt)
            rates["prefill"].append(arguments.tokens / (time.perf_counter() - started))
            llama.clear()
            llama.feed(llama.ids(depth or 1))
            steps = [llama.ids(1) for _ in range(arguments.generate)]
            started = time.perf_counter()
            for step in steps:
                llama.feed(step)
            rates["decode"].append(arguments.generate / (time.perf_counter() - started))
        for kind, samples in rates.items():
            tokens = arguments.tokens if kind == "prefill" else arguments.generate
            results.append({"kind": kind, "tokens": tokens, "depth": depth, "batch": 1,
                            "tokens_per_s": summary(samples)})
    print(json.dumps({"results": results}))


# --- carat --------------------------------------------------------------------------------


def carat_by_bench(arguments) -> list[dict] | None:
    """None if this build has no usable `bench`."""
    command = [
        str(arguments.carat), "bench", str(arguments.model), "--json", "--only", "decode,prefill",
        "--tokens", str(arguments.tokens), "--depth", arguments.depth,
        "--threads", str(arguments.threads), *shlex.split(arguments.flags),
    ]
    done = run(arguments, command, check=False)
    if done.returncode != 0:
        return None
    results = json.loads(done.stdout)["results"]
    return [r for r in results if r["kind"] in ("prefill", "decode") and r.get("batch", 1) == 1]


def carat_by_run(arguments) -> list[dict]:
    """Timings of generating after a long prompt: depth 0 only, warm page cache."""
    words = SENTENCE * (arguments.tokens // 16)
    command = [
        str(arguments.carat), "run", str(arguments.model), "-p", words, "-n", str(arguments.generate),
        "--temp", "0", "--json", "--threads", str(arguments.threads), *shlex.split(arguments.flags),
    ]
    samples = {"prefill": [], "decode": []}
    for _ in range(arguments.repetitions):
        answer = json.loads(run(arguments, command).stdout)
        for kind in samples:
            samples[kind].append(answer["timings"][f"{kind}_tokens_per_s"])
    counts = {"prefill": answer["prompt_tokens"], "decode": answer["completion_tokens"]}
    return [{"kind": kind, "tokens": counts[kind], "depth": 0, "batch": 1, "tokens_per_s": summary(values)}
            for kind, values in samples.items()]


# --- rounds -------------------------------------------------------------------------------


def summary(samples: list[float]) -> dict:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def parse_depths(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def run(arguments, command: list[str], check: bool = True) -> subprocess.CompletedProcess:
    """Runs a command on the chosen CPUs only."""
    cpus = arguments.cpu_list
    done = subprocess.run(command, capture_output=True, text=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    if check and done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)[:300]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done


def llama_results(arguments) -> list[dict]:
    python = arguments.llama_python
    command = [
        str(python), str(Path(__file__).resolve()), "--llama-worker", str(arguments.model),
        "--tokens", str(arguments.tokens), "--generate", str(arguments.generate),
        "--depth", arguments.depth, "--threads", str(arguments.threads),
        "--repetitions", str(arguments.repetitions), "--llama-kv", arguments.llama_kv,
    ]
    return json.loads(run(arguments, command).stdout)["results"]


def choose_carat(arguments):
    """The function that measures carat, found by a first try that also warms the page cache."""
    if not arguments.run_only and carat_by_bench(arguments) is not None:
        return carat_by_bench, "carat bench"
    print("carat bench gives no results: using the timings of carat run", file=sys.stderr)
    if parse_depths(arguments.depth) != [0]:
        raise SystemExit("carat run measures depth 0 only: give --depth 0")
    return carat_by_run, "carat run"


def compare(arguments) -> dict:
    before = machine(arguments)
    if before["load_before"] > 0.5:
        print(f"load average {before['load_before']}: other programs run, the figures will be low and "
              "unfair to the side that waits in barriers", file=sys.stderr)
    by_carat, way = choose_carat(arguments)
    sides = [("carat", by_carat), ("llama.cpp", llama_results)]
    rounds: dict[tuple, dict[str, list[float]]] = {}
    for number in range(arguments.rounds):
        for name, measure in sides if number % 2 == 0 else sides[::-1]:
            for result in measure(arguments):
                place = rounds.setdefault((result["kind"], result["depth"]), {})
                place.setdefault(name, []).append(result["tokens_per_s"]["median"])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    results = []
    for (kind, depth), by_name in sorted(rounds.items(), key=lambda item: (item[0][1], item[0][0])):
        if set(by_name) != {"carat", "llama.cpp"}:
            continue
        ratios = [a / b for a, b in zip(by_name["carat"], by_name["llama.cpp"])]
        results.append({
            "kind": kind, "depth": depth,
            **{name: {**summary(values), "rounds": values} for name, values in by_name.items()},
            "ratio": summary(ratios),
        })
    return {"machine": before, "settings": settings(arguments, way), "results": results}


def machine(arguments) -> dict:
    name = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return {"cpu": name, "cpus": sorted(arguments.cpu_list), "threads": arguments.threads,
            "load_before": round(os.getloadavg()[0], 2)}


def settings(arguments, way: str) -> dict:
    return {
        "model": arguments.model.name, "tokens": arguments.tokens, "generate": arguments.generate,
        "rounds": arguments.rounds, "repetitions": arguments.repetitions, "carat": way,
        "carat_flags": arguments.flags, "llama": PACKAGE, "llama_kv": arguments.llama_kv,
    }


def print_table(report: dict) -> None:
    print(f"{report['settings']['model']} on {report['machine']['cpu']}, "
          f"{report['machine']['threads']} threads; tokens/s, median [least, greatest]", file=sys.stderr)
    print(f"{'kind':8s} {'depth':>6s} {'carat':>26s} {'llama.cpp':>26s} {'ratio':>20s}", file=sys.stderr)
    for result in report["results"]:
        cells = []
        for name, digits in (("carat", 1), ("llama.cpp", 1), ("ratio", 2)):
            value = result[name]
            cells.append(f"{value['median']:.{digits}f} [{value['min']:.{digits}f}, {value['max']:.{digits}f}]")
        print(f"{result['kind']:8s} {result['depth']:6d} {cells[0]:>26s} {cells[1]:>26s} {cells[2]:>20s}",
              file=sys.stderr)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--carat", type=Path, default=Path("build/carat"))
    parser.add_argument("--flags", default="", help="more options for carat, one string")
    parser.add_argument("--run-only", action="store_true", help="use `carat run` even if bench exists")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3, help="within a round")
    parser.add_argument("--tokens", type=int, default=512, help="prompt length")
    parser.add_argument("--generate", type=int, default=64, help="decode steps")
    parser.add_argument("--depth", default="0", help="tokens already in the cache, e.g. 0,4096")
    parser.add_argument("--threads", type=int, help="default: one a chosen CPU")
    parser.add_argument("--cpus", help="e.g. 0,1 (default: all this process may use)")
    parser.add_argument("--llama-kv", choices=LLAMA_KV, default="f16")
    parser.add_argument("--llama-python", type=Path, help="Python that has llama_cpp (default: of --setup)")
    parser.add_argument("--peers", type=Path, default=default_peers(), help="where --setup builds")
    parser.add_argument("--setup", action="store_true", help="build the peer and stop")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers of --setup")
    parser.add_argument("--llama-worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.cpu_list = (
        set(parse_depths(arguments.cpus)) if arguments.cpus else os.sched_getaffinity(0)
    )
    arguments.threads = arguments.threads or len(arguments.cpu_list)
    arguments.llama_python = arguments.llama_python or arguments.peers / "llama-cpp/bin/python"
    if not arguments.setup and arguments.model is None:
        parser.error("give a model")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.setup:
        return setup(arguments.peers, arguments.jobs)
    if arguments.llama_worker:
        return llama_worker(arguments)
    if not arguments.llama_python.exists():
        raise SystemExit(f"{arguments.llama_python} is missing: run bench/peers.py --setup")
    if not shutil.which(str(arguments.carat)):
        raise SystemExit(f"{arguments.carat} cannot be run")
    report = compare(arguments)
    print_table(report)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
