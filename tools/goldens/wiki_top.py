"""The 64 likeliest next ids at each position of 16 KB of text, for gates that run without torch.

Writes tests/fixtures/real/
    wiki_16k.txt       the first whole lines of wikitext-2's test text, at most 16 KiB (NOTICE.md)
    wiki_top64.bin     see below, Gemma 3 270M
    wiki_top64.json    what it was made from, the reference's perplexity, the mass outside the 64

wiki_top64.bin, little-endian:
    char[4]  "CTOP"
    u32      version = 1, windows W, tokens a window T, k
    i32      ids[W][T]           BOS, then T - 1 ids of the text
    { i32 id; f32 log_prob; }    [W][T][k], likeliest first

Entry [w][t] is the distribution after ids[w][0..t]: position t predicts ids[w][t + 1].

    python tools/goldens/wiki_top.py
"""

import math
import struct

import numpy as np
import torch

from reference import (
    FIXTURES, data_folder, encode, load_gguf, log_probs, model_folder, sha256, versions, windows,
    write_json,
)

BOS = 2
K = 64
LIMIT = 16 * 1024
FOLDER = FIXTURES / "real"


def first_lines(raw: bytes) -> bytes:
    """Whole lines from the start, at most LIMIT bytes."""
    return raw[: raw.rindex(b"\n", 0, LIMIT) + 1]


def main() -> None:
    torch.set_num_threads(2)
    path = model_folder() / "gemma3-270m.gguf"
    text = first_lines((data_folder() / "text/wiki.test.raw").read_bytes())
    (FOLDER / "wiki_16k.txt").write_bytes(text)
    model, tokenizer = load_gguf(path)
    ids = windows(encode(tokenizer, text.decode("utf-8")), BOS)

    pairs = np.zeros((len(ids), len(ids[0]), K), np.dtype([("id", "<i4"), ("log_prob", "<f4")]))
    losses, outside = [], []
    for w, window in enumerate(ids):
        rows = log_probs(model, window)
        best = rows.topk(K)
        pairs["id"][w], pairs["log_prob"][w] = best.indices.numpy(), best.values.numpy()
        outside.append(1 - best.values.exp().sum(-1))
        losses.append(-rows[:-1].gather(1, torch.tensor(window[1:])[:, None])[:, 0])
        print(f"window {w}: perplexity {losses[-1].mean().exp():.4f}", flush=True)

    header = b"CTOP" + struct.pack("<4I", 1, len(ids), len(ids[0]), K)
    body = np.array(ids, "<i4").tobytes() + pairs.tobytes()
    (FOLDER / "wiki_top64.bin").write_bytes(header + body)
    loss = torch.cat(losses)
    write_json(FOLDER / "wiki_top64.json", {
        "about": "what wiki_top64.bin holds: Gemma 3 270M (Q4_K_M) dequantized to float32, embed scale "
        f"rounded to bfloat16, rotary angles in float64; tools/goldens/wiki_top.py; {versions()}",
        "model_sha256": sha256(path),
        "text_sha256": sha256(FOLDER / "wiki_16k.txt"),
        "windows": len(ids), "tokens": len(ids[0]), "k": K,
        "scored": len(loss),
        "reference_perplexity": round(math.exp(loss.mean().item()), 4),
        "mean_probability_outside_top": round(torch.cat(outside).mean().item(), 5),
    })


if __name__ == "__main__":
    main()
