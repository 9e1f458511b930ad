"""The float32 reference: models run by `transformers`, with the three corrections carat follows.

1. Weights of a GGUF file are dequantized to float32 (`gguf.quants`), activations stay float32.
2. Gemma's embedding scale sqrt(d) is rounded to bfloat16, as the model was trained.
3. Rotary angles are formed in float64 (`exact_rope`): float32 is off by 3e-3 rad at position 30,000.

Everything here is imported by the other scripts of this folder and by `tools/reference_kl.py`.
"""

import hashlib
import json
import math
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"


def model_folder() -> Path:
    """Folder of the real GGUF files: $CARAT_MODELS, else ~/.cache/carat/models."""
    return Path(os.environ.get("CARAT_MODELS", Path.home() / ".cache/carat/models"))


def data_folder() -> Path:
    """Folder with text/ and eval/: $CARAT_DATA, else shared/data inside or beside the checkout."""
    places = [ROOT / "shared/data", ROOT.parent / "shared/data"]
    if "CARAT_DATA" in os.environ:
        return Path(os.environ["CARAT_DATA"])
    for place in places:
        if place.is_dir():
            return place
    raise SystemExit("no shared/data found: set CARAT_DATA to the folder that holds text/")


def versions() -> str:
    """One line naming what made a golden."""
    import transformers

    torch_version = torch.__version__.split("+")[0]
    return f"torch {torch_version}, transformers {transformers.__version__}, gguf {version('gguf')}"


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def bfloat16(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).float().item()


def round_embed_scale(model) -> None:
    """Gemma: rounds sqrt(d) to bfloat16, in both forms the module may read."""
    embed = model.get_input_embeddings()
    if not hasattr(embed, "embed_scale"):
        return
    scale = bfloat16(math.sqrt(model.config.hidden_size))
    embed.scalar_embed_scale = scale
    embed.embed_scale.fill_(scale)


def inverse_frequencies(parameters: dict, head_dim: int) -> torch.Tensor:
    """float64 [head_dim / 2] of one `rope_parameters` entry: default, linear or llama3."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    inverse = parameters["rope_theta"] ** -exponent
    kind = parameters.get("rope_type", "default")
    if kind == "default":
        return inverse
    if kind == "linear":
        return inverse / parameters["factor"]
    if kind == "llama3":
        return inverse / llama3_factors(parameters, head_dim)
    raise ValueError(f"rope type {kind!r} is not handled")


def llama3_factors(parameters: dict, head_dim: int) -> torch.Tensor:
    """float64 [head_dim / 2]: what the inverse frequencies are divided by (GGUF `rope_freqs.weight`).

    Long wavelengths are divided by `factor`, short ones not at all, those between by
    1 / ((1 - s) / factor + s) with s going from 0 to 1.
    """
    factor, low, high = (parameters[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = parameters["original_max_position_embeddings"]
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    wavelength = 2 * math.pi * parameters["rope_theta"] ** exponent
    smooth = (trained / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    long = torch.full_like(between, float(factor))
    factors = torch.where(wavelength > trained / low, long, between)
    return torch.where(wavelength < trained / high, torch.ones_like(between), factors)


def exact_rope(model) -> None:
    """Makes every rotary embedding of `model` form its angles, cosines and sines in float64."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    parameters = config.rope_parameters
    per_layer_type = "rope_theta" not in parameters

    def forward(x, position_ids, layer_type=None):
        chosen = parameters[layer_type] if per_layer_type else parameters
        angle = position_ids[..., None].double() * inverse_frequencies(chosen, head_dim)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    for module in model.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = forward


def load_gguf(path: Path, *, rounded_scale: bool = True, rope64: bool = True):
    """(model, tokenizer) of a GGUF file, float32, evaluation mode."""
    from transformers import AutoModelForCausalLM

    path = Path(path)
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    ).eval()
    if rounded_scale:
        round_embed_scale(model)
    if rope64:
        exact_rope(model)
    return model, load_tokenizer(path)


def load_tokenizer(path: Path):
    """The file's tokenizer; SmolLM2's gets the pre-tokenizer that the file names.

    transformers 5 gives every `gpt2` GGUF the GPT-2 pattern; "smollm" sets each numeric
    character apart first (shared cases: "½ ¾").
    """
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    path = Path(path)
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    if "smollm" in path.name:
        tokenizer._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    return tokenizer


def encode(tokenizer, text: str, bos: int | None = None) -> list[int]:
    """Ids of `text`, with `bos` in front if given."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return ids if bos is None else [bos, *ids]


@torch.no_grad()
def log_probs(model, ids: list[int], positions: list[int] | None = None) -> torch.Tensor:
    """float64 [positions, vocab]: log softmax of the float32 logits after each of `positions`."""
    keep = torch.tensor(positions if positions is not None else range(len(ids)))
    logits = model(torch.tensor([ids]), logits_to_keep=keep, use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), -1)


def windows(ids: list[int], bos: int, tokens: int = 512, limit: int | None = None) -> list[list[int]]:
    """Consecutive windows of `tokens` ids: BOS, then tokens - 1 of `ids`; an incomplete last one is dropped."""
    step = tokens - 1
    whole = [[bos, *ids[i : i + step]] for i in range(0, len(ids) - step + 1, step)]
    return whole[:limit]


def top(row: torch.Tensor, k: int) -> list[list]:
    """[[id, log probability rounded to 6 digits] x k], most likely first, ties by id."""
    values, ids = row.topk(k)
    order = sorted(zip(ids.tolist(), values.tolist()), key=lambda pair: (-pair[1], pair[0]))
    return [[i, round(v, 6)] for i, v in order]


@torch.no_grad()
def greedy(model, ids: list[int], count: int, stop: set[int] = frozenset()) -> list[int]:
    """Up to `count` ids that follow `ids`, each the most likely one; a stop id is included and ends it."""
    cache, feed, out = None, ids, []
    while len(out) < count:
        step = model(torch.tensor([feed]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = step.past_key_values
        out.append(int(step.logits[0, -1].argmax()))
        feed = out[-1:]
        if out[-1] in stop:
            break
    return out


def write_json(path: Path, value) -> None:
    """Compact JSON, UTF-8, one trailing newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


def as_float32(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().astype("<f4")
