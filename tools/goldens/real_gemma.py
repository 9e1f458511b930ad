"""Goldens of the real Gemma 3 270M (base, Q4_K_M): tests/fixtures/real/gemma3_270m.json.

Needs `gemma3-270m.gguf` in $CARAT_MODELS and `text/moby_dick.txt` in $CARAT_DATA.
Top-50 log probabilities at eight positions of seven contexts, and greedy continuations.

    python tools/goldens/real_gemma.py [--check-only]

`--check-only` prints the values of the design notes without writing.
"""

import argparse

import torch

from reference import (
    FIXTURES, data_folder, encode, greedy, load_gguf, log_probs, model_folder, sha256, top,
    versions, write_json,
)

BOS = 2
TOP = 50
LONG = 1500  # tokens of the long context: crosses the 512-token window twice

PROMPTS = {
    "prose": "The lighthouse keeper climbed the last of the two hundred steps, set down his lamp, and "
    "looked out over the water. There was no ship",
    "code": "import math\n\ndef is_prime(n: int) -> bool:\n    if n < 2:\n        return False\n"
    "    for d in range(2, int(math.sqrt(n)) + 1):\n        if n % d == 0:\n            return",
    "chinese": "春天来了，小河里的冰慢慢融化，孩子们在田野里放风筝。妈妈说：“今天天气真好，我们去",
    "facts": "The capital of France is Paris. The capital of Japan is Tokyo. The capital of Italy is",
    "numbers": "1, 2, 4, 8, 16, 32, 64, 128, 256,",
    "markup": "<table>\n  <tr><td>Name</td><td>Größe</td></tr>\n  <tr><td>Ångström</td><td>1.5 µm</td></tr>\n",
}
GREEDY = ["Once upon a time", "def fibonacci(n):\n", "The capital of France is"]


def spread(length: int) -> list[int]:
    """Eight positions of a short context: 0, the last, and an even spread between."""
    return sorted({round(i * (length - 1) / 7) for i in range(8)})


def case(model, tokenizer, name: str, text: str, ids: list[int], positions: list[int]) -> dict:
    rows = log_probs(model, ids, positions)
    best = tokenizer.decode([int(rows[-1].argmax())])
    print(f"{name}: {len(ids)} tokens, positions {positions}, likeliest next {best!r}", flush=True)
    return {"name": name, "ids": ids, "text": text, "positions": positions,
            "top": [top(row, TOP) for row in rows]}


def print_design_values(path) -> None:
    """The values in the design notes were taken with the unrounded scale and float32 rotary angles."""
    for rounded, rope64 in ((False, False), (True, False), (True, True)):
        model, tokenizer = load_gguf(path, rounded_scale=rounded, rope64=rope64)
        row = log_probs(model, encode(tokenizer, GREEDY[2], BOS), [-1])[0]
        pairs = ", ".join(f"{tokenizer.decode([i])!r} {v:.4f}" for i, v in top(row, 3))
        print(f"scale rounded {rounded}, float64 rope {rope64}: {pairs}")
        for prompt in GREEDY:
            out = greedy(model, encode(tokenizer, prompt, BOS), 24)
            print(f"  {prompt!r} -> {tokenizer.decode(out)!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check-only", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    path = model_folder() / "gemma3-270m.gguf"
    if arguments.check_only:
        return print_design_values(path)

    model, tokenizer = load_gguf(path)
    cases = []
    for name, text in PROMPTS.items():
        ids = encode(tokenizer, text, BOS)
        cases.append(case(model, tokenizer, name, text, ids, spread(len(ids))))
    # Chapter 1 begins somewhat after 28,000 characters of front matter.
    book = (data_folder() / "text/moby_dick.txt").read_text(encoding="utf-8")[30000:40000]
    ids = encode(tokenizer, book, BOS)[:LONG]
    text = tokenizer.decode(ids[1:])
    assert len(ids) == LONG and encode(tokenizer, text, BOS) == ids
    positions = [0, 100, 511, 512, 777, 1023, 1200, LONG - 1]
    cases.append(case(model, tokenizer, "moby_dick_1500", text, ids, positions))

    continuations = []
    for prompt in GREEDY:
        ids = encode(tokenizer, prompt, BOS)
        out = greedy(model, ids, 24)
        text = tokenizer.decode(out)
        print(f"{prompt!r} -> {text!r}", flush=True)
        continuations.append({"prompt": prompt, "ids": ids, "continuation_ids": out, "text": text})

    write_json(FIXTURES / "real/gemma3_270m.json", {
        "about": "Gemma 3 270M (base, Q4_K_M) dequantized to float32: log probabilities of the 50 "
        "likeliest next ids after each of `positions` (index into ids, 0 = BOS), and greedy "
        "continuations. Embed scale rounded to bfloat16 (25.25), rotary angles in float64. "
        f"tools/goldens/real_gemma.py; {versions()}",
        "model_sha256": sha256(path),
        "cases": cases,
        "greedy": continuations,
    })


if __name__ == "__main__":
    main()
