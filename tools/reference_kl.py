#!/usr/bin/env python3
"""KL divergence of carat (or llama.cpp) from the float32 reference, over windows of a text.

The text is tokenized without BOS; window w is BOS and ids[w*511 : (w+1)*511]. Every token after
the first of a window is scored: with the default four windows 2,044 tokens, the figure that the
design notes quote. KL(reference || measured) is in nats, over the whole vocabulary.

    tools/reference_kl.py --carat build/carat                       # carat, default settings
    tools/reference_kl.py --carat build/carat --flags "--isa ref"
    tools/reference_kl.py --llama-python VENV/bin/python            # llama.cpp
    tools/reference_kl.py --llama-python VENV/bin/python --llama-kv q8_0
    tools/reference_kl.py --carat build/carat --top tests/fixtures/real/wiki_top64.bin

The reference (torch, transformers, gguf) is computed once and kept as float32 log probabilities
in the cache folder (0.54 GB a window for Gemma 3); later runs need numpy only. Prints one JSON
object; --save keeps the logits of each window.

With --top the reference is the committed fixture instead (numpy alone will do): the 64 likeliest
ids of each position, all others taken as one. That KL is a lower bound of the true one, so compare
it only with figures made the same way; no perplexity or loss of the reference comes with it.
"""

import argparse
import hashlib
import json
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 32  # positions compared at once: keeps the float64 copies small
LLAMA_KV = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}  # ggml_type


# --- the reference ------------------------------------------------------------------------


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


class Reference:
    """Windows of ids, and the log probabilities of each, computed on first use."""

    def __init__(self, arguments):
        self.arguments = arguments
        key = "-".join([
            arguments.model.stem, file_hash(arguments.model)[:10], file_hash(arguments.text)[:10],
            str(arguments.tokens), *(["unrounded"] if arguments.unrounded_scale else []),
        ])
        self.folder = arguments.cache / key
        self.folder.mkdir(parents=True, exist_ok=True)
        self.loaded = None

    def load(self):
        """(model, tokenizer) by transformers; imported late, since a filled cache needs neither."""
        if self.loaded is None:
            sys.path.insert(0, str(ROOT / "tools/goldens"))
            import reference
            import torch

            torch.set_num_threads(self.arguments.threads)
            print("loading the float32 reference ...", file=sys.stderr)
            self.loaded = reference.load_gguf(
                self.arguments.model, rounded_scale=not self.arguments.unrounded_scale
            )
        return self.loaded

    def windows(self) -> list[list[int]]:
        path = self.folder / "windows.json"
        if not path.exists():
            _, tokenizer = self.load()
            import reference

            text = self.arguments.text.read_text(encoding="utf-8")
            ids = reference.encode(tokenizer, text)
            made = reference.windows(ids, self.bos(), self.arguments.tokens)
            path.write_text(json.dumps(made))
        return json.loads(path.read_text())[: self.arguments.windows]

    def bos(self) -> int:
        if self.arguments.bos is not None:
            return self.arguments.bos
        return self.load()[0].config.bos_token_id

    def log_probs(self, number: int, ids: list[int]) -> np.ndarray:
        """float32 [tokens - 1, vocab], mapped from the cache."""
        path = self.folder / f"window{number}.npy"
        if not path.exists():
            model, _ = self.load()
            import reference

            print(f"reference, window {number} ...", file=sys.stderr)
            rows = reference.log_probs(model, ids, list(range(len(ids) - 1)))
            partial = path.with_suffix(".partial.npy")
            np.save(partial, rows.numpy().astype(np.float32))
            partial.rename(path)
        return np.load(path, mmap_mode="r")


class TopReference:
    """Windows and the k likeliest ids of each position, from a CTOP file (tools/goldens/wiki_top.py)."""

    def __init__(self, path: Path):
        data = path.read_bytes()
        magic, version, count, tokens, k = struct.unpack("<4s4I", data[:20])
        if (magic, version) != (b"CTOP", 1):
            raise SystemExit(f"{path} is no CTOP file of version 1")
        self.ids = np.frombuffer(data, "<i4", count * tokens, 20).reshape(count, tokens)
        pair = np.dtype([("id", "<i4"), ("log_prob", "<f4")])
        self.pairs = np.frombuffer(data, pair, count * tokens * k, 20 + self.ids.nbytes)
        self.pairs = self.pairs.reshape(count, tokens, k)

    def windows(self) -> list[list[int]]:
        return self.ids.tolist()

    def log_probs(self, number: int, ids: list[int]) -> np.ndarray:
        """[tokens - 1, k] pairs of id and log probability."""
        return self.pairs[number, : len(ids) - 1]


# --- what is measured ---------------------------------------------------------------------


def carat_logits(arguments, ids: list[int], out: Path) -> np.ndarray:
    command = [
        str(arguments.carat), "logits", str(arguments.model), "--ids", json.dumps(ids),
        "--positions", f"0:{len(ids)}", "--out", str(out), *shlex.split(arguments.flags),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return np.load(out, mmap_mode="r")


def llama_logits(arguments, ids: list[int], out: Path) -> np.ndarray:
    command = [
        str(arguments.llama_python), str(Path(__file__).resolve()), "--llama-worker", json.dumps(ids),
        "--model", str(arguments.model), "--out", str(out), "--threads", str(arguments.threads),
        "--llama-kv", arguments.llama_kv,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return np.load(out, mmap_mode="r")


def llama_worker(arguments) -> None:
    """Runs inside the environment that has llama_cpp: logits of every position into --out."""
    import llama_cpp

    ids = json.loads(arguments.llama_worker)
    kind = LLAMA_KV[arguments.llama_kv]
    model = llama_cpp.Llama(
        str(arguments.model), n_ctx=len(ids), n_batch=len(ids), n_ubatch=len(ids), logits_all=True,
        n_threads=arguments.threads, n_threads_batch=arguments.threads, type_k=kind, type_v=kind,
        flash_attn=arguments.llama_kv == "q8_0", verbose=False,
    )
    model.eval(ids)
    np.save(arguments.out, np.array(model.scores[: len(ids)], np.float32))


# --- comparing ----------------------------------------------------------------------------


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64, row by row."""
    rows = logits.astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def compare(reference: np.ndarray, logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays [scored]: kl, same (top-1 agrees), and the loss of each side."""
    if not np.isfinite(logits).all():
        raise SystemExit("the measured logits hold a NaN or an infinity")
    parts: dict[str, list] = {"kl": [], "same": [], "reference_loss": [], "loss": []}
    for begin in range(0, len(targets), BLOCK):
        rows = slice(begin, begin + BLOCK)
        p, q = reference[rows].astype(np.float64), log_softmax(logits[rows])
        index = np.arange(len(p)), targets[rows]
        parts["kl"].append((np.exp(p) * (p - q)).sum(-1))
        parts["same"].append(p.argmax(-1) == q.argmax(-1))
        parts["reference_loss"].append(-p[index])
        parts["loss"].append(-q[index])
    return {name: np.concatenate(values) for name, values in parts.items()}


def compare_top(reference: np.ndarray, logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """As `compare`, with ids outside the reference's top ones taken as a single one."""
    if not np.isfinite(logits).all():
        raise SystemExit("the measured logits hold a NaN or an infinity")
    parts: dict[str, list] = {"kl": [], "same": [], "loss": []}
    for begin in range(0, len(targets), BLOCK):
        rows = slice(begin, begin + BLOCK)
        q, pairs = log_softmax(logits[rows]), reference[rows]
        p, q_top = pairs["log_prob"].astype(np.float64), np.take_along_axis(q, pairs["id"], -1)
        p_rest = np.clip(1 - np.exp(p).sum(-1), 1e-12, 1)
        q_rest = np.clip(1 - np.exp(q_top).sum(-1), 1e-12, 1)
        inside = (np.exp(p) * (p - q_top)).sum(-1)
        parts["kl"].append(inside + p_rest * (np.log(p_rest) - np.log(q_rest)))
        parts["same"].append(pairs["id"][:, 0] == q.argmax(-1))
        parts["loss"].append(-q[np.arange(len(q)), targets[rows]])
    return {name: np.concatenate(values) for name, values in parts.items()}


def measure(arguments) -> dict:
    source = TopReference(arguments.top) if arguments.top else Reference(arguments)
    compare_rows = compare_top if arguments.top else compare
    name = "carat" if arguments.carat else "llama.cpp"
    logits_of = carat_logits if arguments.carat else llama_logits
    results, seconds = [], 0.0
    with tempfile.TemporaryDirectory(dir=arguments.cache) as temporary:
        for number, ids in enumerate(source.windows()):
            reference = source.log_probs(number, ids)
            folder = arguments.save or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            logits = logits_of(arguments, ids, folder / f"window{number}.npy")
            seconds += time.monotonic() - started
            if len(logits) != len(ids) or not arguments.top and logits.shape[1] != reference.shape[1]:
                raise SystemExit(f"logits of the shape {logits.shape} do not fit {len(ids)} ids")
            results.append(compare_rows(reference, logits[:-1], np.array(ids[1:])))
            print(f"window {number}: mean KL {results[-1]['kl'].mean():.6f}", file=sys.stderr, flush=True)
    all_of = {key: np.concatenate([r[key] for r in results]) for key in results[0]}
    perplexity = {name: round(float(np.exp(all_of["loss"].mean())), 4)}
    if "reference_loss" in all_of:
        perplexity["reference"] = round(float(np.exp(all_of["reference_loss"].mean())), 4)
    return {
        "measured": name,
        "kl_over": "the reference's top ids and the rest as one" if arguments.top else "the vocabulary",
        "settings": arguments.flags if arguments.carat else f"KV {arguments.llama_kv}",
        "model": arguments.model.name,
        "windows": len(results), "tokens": len(all_of["kl"]),
        "kl": {
            "mean": float(f"{all_of['kl'].mean():.4g}"),
            "p99": float(f"{np.quantile(all_of['kl'], 0.99):.4g}"),
            "max": float(f"{all_of['kl'].max():.4g}"),
        },
        "kl_by_window": [float(f"{r['kl'].mean():.4g}") for r in results],
        "top1": round(float(all_of["same"].mean()), 5),
        "ppl": perplexity,
        "seconds": round(seconds, 2),
    }


def default_text() -> Path | None:
    """wiki.test.raw of the shared data folder, inside or beside the checkout, or of $CARAT_DATA."""
    for folder in (os.environ.get("CARAT_DATA"), ROOT / "shared/data", ROOT.parent / "shared/data"):
        if folder and (Path(folder) / "text/wiki.test.raw").exists():
            return Path(folder) / "text/wiki.test.raw"
    return None


def parse() -> argparse.Namespace:
    home = Path.home() / ".cache/carat"
    models = Path(os.environ.get("CARAT_MODELS", home / "models"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--carat", type=Path, help="carat's binary")
    parser.add_argument("--flags", default="", help="more options for `carat logits`, one string")
    parser.add_argument("--llama-python", type=Path, help="Python that has llama_cpp: measure that instead")
    parser.add_argument("--llama-kv", choices=LLAMA_KV, default="f16")
    parser.add_argument("--model", type=Path, default=models / "gemma3-270m.gguf")
    parser.add_argument("--text", type=Path, default=default_text())
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512, help="a window, BOS included")
    parser.add_argument("--bos", type=int, help="id in front of each window (default: the model's)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cache", type=Path, default=home / "reference", help="never inside the checkout")
    parser.add_argument("--unrounded-scale", action="store_true", help="reference with sqrt(d) unrounded")
    parser.add_argument("--top", type=Path, help="CTOP fixture to use as the reference")
    parser.add_argument("--save", type=Path, help="folder that keeps the measured logits")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--llama-worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.llama_worker:
        if bool(arguments.carat) == bool(arguments.llama_python):
            parser.error("give one of --carat and --llama-python")
        if arguments.text is None and not arguments.top:
            parser.error("no shared data found: give --text or set CARAT_DATA")
        arguments.cache.mkdir(parents=True, exist_ok=True)
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.llama_worker:
        return llama_worker(arguments)
    print(json.dumps(measure(arguments), indent=1))


if __name__ == "__main__":
    main()
