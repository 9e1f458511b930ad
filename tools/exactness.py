#!/usr/bin/env python3
"""Writes docs/exactness.md: how far carat's logits are from transformers' on the tiny models of tests/fixtures.

    tools/exactness.py [--carat build/carat] [--out docs/exactness.md]

Needs numpy. For each model, each form it exists in (GGUF file, Hugging Face folder) and each kernel table of this
machine, the largest |difference| over all positions and ids, as a share of max(1, largest |logit|).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "tiny"


def carat_logits(carat: str, model: Path, ids: list[int], isa: str, options: list[str]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        subprocess.run([carat, "logits", str(model), "--ids", json.dumps(ids), "--out", str(out), "--isa", isa, "-q",
                        "--ctx", str(max(len(ids), 64)), *options], check=True)
        return np.load(out)


def error(carat: str, folder: Path, model: Path, isa: str, options: list[str]) -> float:
    """Largest share over the cases that start at position 0; the others need the decoder itself (golden_test)."""
    worst = 0.0
    for case in json.loads((folder / "expected.json").read_text())["cases"]:
        if case["position_offset"] != 0:
            continue
        want = np.load(folder / f"{case['name']}.npy")
        got = carat_logits(carat, model, case["ids"], isa, options)[case["positions"]]
        assert np.isfinite(got).all()
        worst = max(worst, float(np.abs(got - want).max() / max(1.0, np.abs(want).max())))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carat", default=str(ROOT / "build" / "carat"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "exactness.md"))
    arguments = parser.parse_args()
    doctor = json.loads(subprocess.run([arguments.carat, "doctor", "--json"], check=True, capture_output=True).stdout)
    tables = list(reversed(doctor["kernel_tables"]))
    lines = [
        "# Exactness",
        "",
        "Written by tools/exactness.py. Largest |logit - reference| over all positions and ids, divided by",
        "max(1, largest |logit|), on the tiny seeded models of tests/fixtures/tiny (float32 weights; the reference is",
        "float32 transformers with float64 rotary angles). The limits are 1e-4 for ref and 1e-3 for the other tables;",
        "tests/model/golden_test.cpp holds them, also at positions far out, in any chunking and in any batch.",
        "",
        f"Float activations and float32 KV, {doctor['cpu']}; in the last column bf16 KV with the best table.",
        "",
        "| model | form | " + " | ".join(tables) + " | bf16 KV |",
        "|---|---|" + "---|" * (len(tables) + 1),
    ]
    for folder in sorted(path for path in FIXTURES.iterdir() if path.is_dir()):
        forms = [("GGUF", folder / "model.gguf"), ("folder", folder)]
        for name, model in forms:
            if not model.exists():
                continue
            cells = [f"{error(arguments.carat, folder, model, isa, []):.1e}" for isa in tables]
            cells.append(f"{error(arguments.carat, folder, model, tables[-1], ['--kv-local', 'bf16', '--kv-global', 'bf16']):.1e}")
            lines.append(f"| {folder.name} | {name} | " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr)
    Path(arguments.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
