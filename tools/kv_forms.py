#!/usr/bin/env python3
"""What each form of the KV cache costs: KL and top-1 against exact KV, over one long context.

The float32 reference (torch, transformers, gguf: tools/goldens) reads BOS and the text in chunks
with a cache that returns keys and values as a form would restore them. Every `--every`-th position
is scored, against the same model with exact KV: KL(exact || form) in nats over the whole
vocabulary, its mean, standard error, mean over the second half, and the share of equal top-1.
Differences below a third mean nothing on one text: positions share the rounding of earlier tokens,
so the standard error is too small. Steps a thousandth larger moved 4 and 2 bits by a quarter. Compare
on several texts (--start). Columns of bits are bits a value with scales of 16 bits, keys / values.

    tools/kv_forms.py                              # every form, 8 to 17 s each on two idle cores
    tools/kv_forms.py --forms stored paged         # groups
    tools/kv_forms.py --forms 'paged-q3*' q8-rot   # names, with wildcards
    tools/kv_forms.py --list                       # groups, names and sizes, nothing is run

In a name, k and v are the keys' and the values' code: `page` has a minimum and a step for each
channel over a page of 64 tokens, `g32` for each 32 channels of a token, `rot` is rotated first by a
Hadamard matrix of the head's size. 8 bits are symmetric, fewer have a minimum. Unless a form says
otherwise, local layers (sliding window) are 8 bits rotated, and a form acts on every token at once.

Forms named `paged-` are run as an engine does: a token sees its own page at 8 bits rotated, and
earlier pages, all full, at fewer bits, made from those 8 bits. `-s16` stores scales in 16 bits:
that of 8 bits is rounded up to bfloat16; minimum and step go down and up to float16.
"""

import argparse
import fnmatch
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import DynamicCache

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/goldens"))
from reference import data_folder, encode, load_gguf, model_folder, versions  # noqa: E402

PAGE = 64
CHUNK = 512  # tokens a step where a form does not ask for pages
BOS = 2


# --- codes --------------------------------------------------------------------------------


def hadamard(size: int) -> torch.Tensor:
    """[size, size], orthonormal and symmetric; `size` is a power of two."""
    if size & (size - 1):
        raise SystemExit(f"no Hadamard rotation for a head of {size}")
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    return matrix / math.sqrt(size)


def directed(x: torch.Tensor, kind: torch.dtype, *, up: bool) -> torch.Tensor:
    """float32 `x` rounded to `kind`, never downwards (`up`) or never upwards."""
    near = x.to(kind)
    wrong = near.float() < x if up else near.float() > x
    away = near.view(torch.int16) + torch.where((near > 0) == up, 1, -1).to(torch.int16)
    least = torch.tensor(1 if up else -0x7FFF, dtype=torch.int16)  # the subnormal next to zero on that side
    away = torch.where(near == 0, least, away)
    return torch.where(wrong, away, near.view(torch.int16)).view(kind).float()


@dataclass(frozen=True)
class Code:
    """How keys or values [batch, heads, tokens, head_dim] are stored; a call returns them restored."""

    bits: int
    group: int = 0  # channels of a token that share a scale; 0: the whole head
    page: bool = False  # instead: the tokens of a page, channel by channel
    rotated: bool = False
    stored16: bool = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rotation = hadamard(x.shape[-1]) if self.rotated else None
        y = x @ rotation if self.rotated else x
        if self.page:
            y = self.restore(y.unflatten(-2, (-1, PAGE)), -2).flatten(-3, -2)
        else:
            y = self.restore(y.unflatten(-1, (-1, self.group or x.shape[-1])), -1).flatten(-2)
        return y @ rotation if self.rotated else y

    def restore(self, z: torch.Tensor, axis: int) -> torch.Tensor:
        """`z` quantized and back, with scales shared along `axis`."""
        if self.bits == 8:
            low, step = torch.zeros(()), z.abs().amax(axis, keepdim=True) / 127
            first, last = -127, 127
        else:
            first, last = 0, 2**self.bits - 1
            low = z.amin(axis, keepdim=True)
            low = directed(low, torch.float16, up=False) if self.stored16 else low
            step = (z.amax(axis, keepdim=True) - low) / last
        if self.stored16:
            step = directed(step, torch.bfloat16 if self.bits == 8 else torch.float16, up=True)
        step = torch.where(step == 0, 1, step)
        return ((z - low) / step).round().clamp(first, last) * step + low

    def size(self, head_dim: int) -> float:
        """Bits a value, with scales of 16 bits."""
        return self.bits + (16 if self.bits == 8 else 32) / (PAGE if self.page else self.group or head_dim)


# --- forms --------------------------------------------------------------------------------

Q8_ROT = Code(8, rotated=True)


def exact(x: torch.Tensor) -> torch.Tensor:
    return x


@dataclass(frozen=True)
class Form:
    """(keys, values) of each kind of layer. With `own`, which codes a query's own page, these code earlier ones."""

    local: tuple = (Q8_ROT, Q8_ROT)
    wide: tuple = (Q8_ROT, Q8_ROT)  # the global layers
    own: tuple | None = None

    def stored16(self) -> "Form":
        def pair(codes):
            return codes and tuple(replace(code, stored16=True) for code in codes)

        return Form(pair(self.local), pair(self.wide), pair(self.own))

    def paged(self) -> "Form":
        return replace(self, own=(Q8_ROT, Q8_ROT))


def page_keys(bits: int, **values) -> tuple[Code, Code]:
    return Code(bits, page=True), Code(bits, **values)


VALUES = {"vg32": {"group": 32}, "vrot32": {"group": 32, "rotated": True}, "vrot64": {"group": 64, "rotated": True}}
Q4 = page_keys(4, **VALUES["vrot64"])


def all_forms() -> dict[str, dict[str, Form]]:
    """Group -> name -> form, in the order they are run."""
    low = {f"q{b}-kpage-{v}": Form(wide=page_keys(b, **VALUES[v])) for b in (3, 2) for v in VALUES}
    q4 = Form(wide=Q4)
    paged = {"q4-kpage-vrot64": q4, **low, "all-q4-kpage-vrot64": Form(local=Q4, wide=Q4)}

    def everywhere(code: Code) -> Form:
        return Form((code, code), (code, code))

    return {
        # what the cache and steps of one page change by themselves: nothing but float32 sums
        "check": {"paged-exact": Form((exact, exact), (exact, exact), (exact, exact))},
        "stored": {"q8-rot-s16": everywhere(Q8_ROT).stored16(), "q4-kpage-vrot64-s16": q4.stored16()},
        "paged": {f"paged-{name}": form.paged() for name, form in paged.items()},
        "paged16": {f"paged-{name}-s16": form.paged().stored16() for name, form in paged.items()},
        "q8": {
            "q8-head": everywhere(Code(8)),
            "q8-g64": everywhere(Code(8, 64)),
            "q8-g32": everywhere(Code(8, 32)),
            "q8-rot": everywhere(Q8_ROT),
        },
        "q4": {
            "q4-kpage-vrot64": q4,
            "q4-kg32-vg32": Form(wide=(Code(4, 32), Code(4, 32))),
            "q4-krot64-vrot64": Form(wide=(Code(4, 64, rotated=True), Code(4, 64, rotated=True))),
            "k6g32-v4g32": Form(wide=(Code(6, 32), Code(4, 32))),
        },
        "low": low,
    }


def chosen(patterns: list[str]) -> dict[str, Form]:
    """Forms of the groups and names that match, in the order of `all_forms`."""
    groups = all_forms()
    names = [*groups, *(name for forms in groups.values() for name in forms)]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise SystemExit(f"no form and no group is called {pattern!r}: see --list")

    def wanted(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    return {
        name: form
        for group, forms in groups.items() for name, form in forms.items()
        if not patterns or wanted(group) or wanted(name)
    }


# --- running ------------------------------------------------------------------------------


class FormCache(DynamicCache):
    """Returns keys and values as `form` restores them. With form.own, an update is exactly one page."""

    def __init__(self, config, form: Form):
        super().__init__(config=config)
        self.form = form
        self.codes = [form.wide if kind == "full_attention" else form.local for kind in config.layer_types]

    def update(self, keys, values, layer_idx, *arguments, **named):
        codes = self.codes[layer_idx]
        first = self.form.own or codes
        keys, values = first[0](keys), first[1](values)
        seen = super().update(keys, values, layer_idx, *arguments, **named)
        if self.form.own:
            # the layer keeps this page (its last tokens) for later queries: from now on in its other code
            assert keys.shape[-2] == PAGE
            layer = self.layers[layer_idx]
            layer.keys = torch.cat((layer.keys[:, :, :-PAGE], codes[0](keys)), -2)
            layer.values = torch.cat((layer.values[:, :, :-PAGE], codes[1](values)), -2)
        return seen


def log_probs(model, ids: list[int], form: Form, every: int) -> Iterator[torch.Tensor]:
    """float32 [CHUNK / every, vocab]: log softmax at every `every`-th position, chunk by chunk."""
    cache = FormCache(model.config, form)
    step = PAGE if form.own else CHUNK
    rows = []
    for begin in range(0, len(ids), step):
        keep = torch.arange(-begin % every, step, every)
        piece = torch.tensor([ids[begin : begin + step]])
        with torch.no_grad():
            logits = model(piece, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits[0]
        rows.append(torch.log_softmax(logits, -1))
        if (begin + step) % CHUNK == 0:
            yield torch.cat(rows)
            rows = []


def compare(model, ids: list[int], form: Form, every: int, reference: list[torch.Tensor]):
    """(KL, equal top-1) of each scored position."""
    kl, same = [], []
    for p, q in zip(reference, log_probs(model, ids, form, every), strict=True):
        kl.append((p.exp() * (p - q)).sum(-1, dtype=torch.float64))
        same.append(p.argmax(-1) == q.argmax(-1))
    return torch.cat(kl), torch.cat(same).double()


def sizes(form: Form, head_dim: int) -> str:
    """Bits a value of local and global layers, keys / values (earlier pages, where a form has them)."""
    pairs = [[c.size(head_dim) if isinstance(c, Code) else 32 for c in pair] for pair in (form.local, form.wide)]
    return "  ".join(f"{k:5.2f}/{v:5.2f}" for k, v in pairs)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a Gemma GGUF (default: the 270M)")
    parser.add_argument("--text", type=Path, help="default: moby_dick.txt of the shared data")
    parser.add_argument("--start", type=int, default=30000, help="the text's first character")
    parser.add_argument("--tokens", type=int, default=4096, help=f"BOS included, a multiple of {CHUNK}")
    parser.add_argument("--every", type=int, default=8, help="score each such position (1: 4.3 GB for the reference)")
    parser.add_argument("--forms", nargs="+", default=[], metavar="NAME", help="groups or names, with wildcards")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="name the forms and stop")
    arguments = parser.parse_args()
    if arguments.tokens % CHUNK or not 1 <= arguments.every <= PAGE or arguments.tokens <= 0:
        parser.error(f"--tokens is a multiple of {CHUNK}, --every 1 to {PAGE}")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.list:
        for group, forms in all_forms().items():
            print(f"{group}: {' '.join(forms)}")
        return
    forms = chosen(arguments.forms)
    torch.set_num_threads(arguments.threads)
    model, tokenizer = load_gguf(arguments.model or model_folder() / "gemma3-270m.gguf")
    head_dim = model.config.head_dim
    path = arguments.text or data_folder() / "text/moby_dick.txt"
    text = path.read_text(encoding="utf-8")[arguments.start :][: arguments.tokens * 8]
    ids = encode(tokenizer, text, BOS)[: arguments.tokens]
    if len(ids) < arguments.tokens:
        raise SystemExit(f"{path} has only {len(ids)} tokens from character {arguments.start} on")

    print(f"# {versions()}; {len(ids)} tokens of {path.name}, every {arguments.every}th scored", flush=True)
    reference = list(log_probs(model, ids, Form((exact, exact), (exact, exact)), arguments.every))
    print(f"# {'form':32s} {'KL':>9s} {'±':>8s} {'2nd half':>9s} {'top-1':>6s}  bits k/v local, global  seconds")
    for name, form in forms.items():
        started = time.monotonic()
        kl, same = compare(model, ids, form, arguments.every, reference)
        error = kl.std() / math.sqrt(len(kl))
        print(
            f"{name:34s} {kl.mean():9.6f} {error:8.6f} {kl[len(kl) // 2 :].mean():9.6f} {same.mean():6.4f}"
            f"  {sizes(form, head_dim)}  {time.monotonic() - started:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
