"""Tiny seeded models of each family, and the logits `transformers` computes for them.

For each entry of MODELS, `tests/fixtures/tiny/<name>/` gets

    model.gguf          float32, the keys and tensor names llama.cpp's converter writes
    model.safetensors   the same weights in Hugging Face form, with config.json
    config.json         "style": as files on the hub have it, or as transformers 5 writes it
    expected.json       cases: ids, position_offset, positions, file of the logits, greedy ids
    <case>.npy          float32 [positions, vocab], logits after each of `positions`

The logits are those of one prefill. The script stops unless token by token and chunked
evaluation agree with it, the saved folder gives the same bits when loaded again, and every
switch listed in `must_matter` changes the logits clearly when it is set otherwise. Models
with `gguf=False` are folders only: llama.cpp has no key for their switch.

    python tools/goldens/tiny_models.py [NAME ...]

check_converter.py compares the GGUFs with what llama.cpp's converter makes of the folders.
A new family is one entry of FAMILIES; a new model one of MODELS.
"""

import argparse
import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import MODEL_ARCH, GGUFWriter
from transformers import DynamicCache

from reference import (
    FIXTURES, as_float32, bfloat16, exact_rope, llama3_factors, round_embed_scale, versions,
    write_json,
)
from tiny_multimodal import reload_multimodal, wrap_multimodal
from tiny_vocab import byte_level_vocab, sentencepiece_vocab

AGREEMENT = 2e-4  # |prefill - token by token|: float32 sums in another order, logits up to ~20
CLEAR = 0.02  # least lead of a greedy choice
MATTERS = 0.05  # least change of some logit when a switch of `must_matter` is set otherwise
BEYOND = 2.0  # least |score| / cap and |logit| / cap where a model has caps


# --- families -----------------------------------------------------------------------------


@dataclass
class Family:
    config: type
    model: type
    arch: MODEL_ARCH
    add_vocab: Callable[[GGUFWriter, int], None]
    add_keys: Callable[[GGUFWriter, object], None]
    bos: int | None
    # (name, weight, config) -> the tensor as a GGUF holds it; default: unchanged
    stored: Callable[[str, torch.Tensor, object], torch.Tensor] = lambda name, w, config: w
    # linear weights have the standard deviation gain / sqrt(columns)
    gain: float = 1.2
    norm_offset: float = 0.0


def add_common_keys(writer: GGUFWriter, config) -> None:
    """The keys every family of the converter's base class gets."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_head_dim(writer: GGUFWriter, config) -> None:
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)


def gemma3_keys(writer: GGUFWriter, config) -> None:
    add_common_keys(writer, config)
    add_head_dim(writer, config)
    writer.add_sliding_window(config.sliding_window)
    # Older files lack the local base (so do these); the architecture's default is 10,000.
    local = config.rope_parameters["sliding_attention"]["rope_theta"]
    if local != 10000.0:
        writer.add_rope_freq_base_swa(local)
    # Not written by the converter: a file with an unusual query scale must say so.
    if config.query_pre_attn_scalar != config.head_dim:
        writer.add_attention_scale(config.query_pre_attn_scalar**-0.5)


def llama_keys(writer: GGUFWriter, config) -> None:
    add_common_keys(writer, config)
    if not config.omit_head_dim:
        add_head_dim(writer, config)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)


def gemma_keys(writer: GGUFWriter, config) -> None:
    """Gemma 1's converter does not go through the base class and writes no RoPE base."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    add_head_dim(writer, config)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def gemma2_keys(writer: GGUFWriter, config) -> None:
    gemma_keys(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)
    if config.query_pre_attn_scalar != config.head_dim:  # as for Gemma 3
        writer.add_attention_scale(config.query_pre_attn_scalar**-0.5)


def qwen3_keys(writer: GGUFWriter, config) -> None:
    add_common_keys(writer, config)
    add_head_dim(writer, config)


def shifted_norms(name: str, weight: torch.Tensor, config) -> torch.Tensor:
    return weight + 1 if name.endswith("norm.weight") else weight


def adjacent_pairs(name: str, weight: torch.Tensor, config) -> torch.Tensor:
    """Rows of q and k reordered from (i, i + hd/2) to (2i, 2i + 1), head by head."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if f"{part}." in name:
            halves = weight.reshape(count, 2, weight.shape[0] // count // 2, *weight.shape[1:])
            return halves.swapaxes(1, 2).reshape(weight.shape)
    return weight


FAMILIES = {
    "gemma3": Family(
        transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM, MODEL_ARCH.GEMMA3,
        sentencepiece_vocab, gemma3_keys, bos=2, stored=shifted_norms, norm_offset=1.0,
    ),
    "llama": Family(
        transformers.LlamaConfig, transformers.LlamaForCausalLM, MODEL_ARCH.LLAMA,
        byte_level_vocab, llama_keys, bos=None, stored=adjacent_pairs,
    ),
    "gemma": Family(
        transformers.GemmaConfig, transformers.GemmaForCausalLM, MODEL_ARCH.GEMMA,
        sentencepiece_vocab, gemma_keys, bos=2, stored=shifted_norms, norm_offset=1.0,
    ),
    "gemma2": Family(
        transformers.Gemma2Config, transformers.Gemma2ForCausalLM, MODEL_ARCH.GEMMA2,
        sentencepiece_vocab, gemma2_keys, bos=2, stored=shifted_norms, norm_offset=1.0,
    ),
    "qwen2": Family(
        transformers.Qwen2Config, transformers.Qwen2ForCausalLM, MODEL_ARCH.QWEN2,
        partial(byte_level_vocab, pre="qwen2"), add_common_keys, bos=None,
    ),
    "qwen3": Family(
        transformers.Qwen3Config, transformers.Qwen3ForCausalLM, MODEL_ARCH.QWEN3,
        partial(byte_level_vocab, pre="qwen2"), qwen3_keys, bos=None,
    ),
    "mistral": Family(
        transformers.MistralConfig, transformers.MistralForCausalLM, MODEL_ARCH.LLAMA,
        sentencepiece_vocab, llama_keys, bos=2, stored=adjacent_pairs,
    ),
}


# --- models -------------------------------------------------------------------------------


@dataclass
class Case:
    name: str
    length: int = 40
    position_offset: int = 0
    positions: list[int] | None = None  # None: all


@dataclass
class Tiny:
    name: str
    family: str
    config: dict
    # config overrides, each of which must change the logits ("rope.full_attention.factor": 1);
    # "fill.q_proj.bias": 0 sets every weight of that ending
    must_matter: list[dict]
    cases: list[Case] = field(default_factory=lambda: [Case("short")])
    style: str = "v5"  # config.json: "hub" (as published files) or "v5" (as transformers 5)
    omit_head_dim: bool = False  # Llama files may lack it: then d / heads
    gguf: bool = True  # False: the folder only, where llama.cpp's converter loses the switch
    wrap: str | None = None  # prefix of the text tensors in a Gemma3ForConditionalGeneration


def gemma3_config(**changes) -> dict:
    factor = changes.pop("factor", None)
    local = changes.pop("local_base", 10000.0)
    full = {"rope_type": "default", "rope_theta": 1000000.0}
    if factor:
        full |= {"rope_type": "linear", "factor": factor}
    return {
        "vocab_size": 288, "hidden_size": 32, "head_dim": 32, "sliding_window": 8,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
        **changes,
    }


def llama_config(**changes) -> dict:
    rope = {"rope_type": "default", "rope_theta": changes.pop("base", 10000.0)}
    rope |= changes.pop("scaling", {})
    return {
        "vocab_size": 288, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
        "rope_parameters": rope, **changes,
    }


def gemma_config(**changes) -> dict:
    return {
        "vocab_size": 288, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **changes,
    }


def qwen_config(**changes) -> dict:
    return {
        "vocab_size": 288, "num_hidden_layers": 2, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, **changes,
    }


def mistral_config(**changes) -> dict:
    # head_dim is not d / heads, as in Mistral Nemo
    return {
        "vocab_size": 288, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 40,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "bos_token_id": 2, "eos_token_id": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, **changes,
    }


GEMMA3_SWITCHES = [
    {"sliding_window": 7}, {"sliding_window": 9}, {"sliding_window": 4096},
    {"rope.full_attention.rope_theta": 10000.0}, {"rope.sliding_attention.rope_theta": 1e6},
    {"query_pre_attn_scalar": 64}, {"hidden_activation": "silu"},
]
FACTOR_SWITCHES = [{"rope.full_attention.factor": 1.0}]
GEMMA2_SWITCHES = [
    {"sliding_window": 7}, {"sliding_window": 9}, {"sliding_window": 4096},
    {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
    {"attn_logit_softcapping": 4.0}, {"final_logit_softcapping": 5.0},
    {"hidden_activation": "silu"}, {"rope.rope_theta": 1e6},
]
BIAS_SWITCHES = [{f"fill.{part}_proj.bias": 0.0} for part in "qkv"]
QK_NORM_SWITCHES = [{f"fill.{part}_norm.weight": 1.0} for part in "qk"]
FAR_OUT = [Case("short"), Case("offset", position_offset=1_000_000)]

MODELS = [
    # 4B-like: factor 8 on global layers. Layer 5 of 6 is the global one.
    Tiny(
        "gemma3-gqa42", "gemma3",
        gemma3_config(num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                      intermediate_size=32, query_pre_attn_scalar=32, factor=8.0),
        GEMMA3_SWITCHES + FACTOR_SWITCHES, style="hub",
    ),
    # 270M-like: one KV head, no factor, a local layer after the global one.
    Tiny(
        "gemma3-mqa41", "gemma3",
        gemma3_config(num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=1,
                      intermediate_size=32, query_pre_attn_scalar=32),
        GEMMA3_SWITCHES, style="v5",
    ),
    # 27B-like: query scale other than 1/sqrt(head_dim) (GGUF key attention.scale); ffn wider than d.
    Tiny(
        "gemma3-scale20", "gemma3",
        gemma3_config(num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
                      intermediate_size=64, query_pre_attn_scalar=20, factor=8.0),
        GEMMA3_SWITCHES + FACTOR_SWITCHES + [{"query_pre_attn_scalar": 32}],
        cases=[
            Case("short"),
            Case("offset", position_offset=100_000),
            Case("long", length=4300,
                 positions=[0, 7, 8, 2047, 4095, 4096, 4200, 4298, 4299]),
        ],
        style="hub",
    ),
    # Local base in the file (GGUF key rope.freq_base_swa).
    Tiny(
        "gemma3-local-base", "gemma3",
        gemma3_config(num_hidden_layers=6, num_attention_heads=2, num_key_value_heads=1,
                      intermediate_size=64, query_pre_attn_scalar=32, local_base=500.0),
        [{"rope.sliding_attention.rope_theta": 10000.0}, {"sliding_window": 9}], style="hub",
    ),
    # SmolLM2-like: tied head, base 10,000.
    Tiny(
        "llama-tied", "llama", llama_config(tie_word_embeddings=True),
        [{"rope.rope_theta": 500000.0}, {"rms_norm_eps": 1e-1}, {"hidden_act": "gelu"}],
        style="hub", omit_head_dim=True,
    ),
    # Own head matrix, base 500,000, one KV head for four.
    Tiny(
        "llama-untied", "llama",
        llama_config(tie_word_embeddings=False, base=500000.0, num_key_value_heads=1,
                     intermediate_size=64),
        [{"rope.rope_theta": 10000.0}], style="v5",
    ),
    # Llama 3.1 scaling. Trained length 64, so that all three bands of wavelengths occur in 40 tokens.
    Tiny(
        "llama3-scaled", "llama",
        llama_config(tie_word_embeddings=True, base=500000.0, scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
        [{"rope.factor": 1.0}, {"rope.low_freq_factor": 2.0}, {"rope.high_freq_factor": 2.0}],
        cases=[Case("short"), Case("offset", position_offset=100_000)], style="hub",
    ),
    # Seeds follow the place in this list: add at the end.
    # Gemma 2B-like: head_dim 256, one KV head.
    Tiny(
        "gemma-mqa256", "gemma",
        gemma_config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=256,
                     num_key_value_heads=1, intermediate_size=32),
        [{"rope.rope_theta": 1e6}, {"hidden_act": "silu"}], style="hub",
    ),
    # Gemma 7B-like: as many KV heads as heads; head_dim 24 and widths that no vector divides.
    Tiny(
        "gemma-mha24", "gemma",
        gemma_config(hidden_size=27, num_hidden_layers=2, num_attention_heads=3, head_dim=24,
                     num_key_value_heads=3, intermediate_size=37),
        [{"rope.rope_theta": 1e6}, {"hidden_act": "silu"}], cases=FAR_OUT, style="v5",
    ),
    # Caps far below the scores and logits; window 8 on even layers, 40 tokens.
    Tiny(
        "gemma2-caps", "gemma2",
        gemma_config(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, head_dim=24,
                     num_key_value_heads=2, intermediate_size=24, query_pre_attn_scalar=24,
                     attn_logit_softcapping=2.0, final_logit_softcapping=2.5, sliding_window=8),
        GEMMA2_SWITCHES + [{"query_pre_attn_scalar": 64}], cases=FAR_OUT, style="hub",
    ),
    # 27B-like: head_dim 128, query scale not 1 / sqrt(head_dim).
    Tiny(
        "gemma2-scale40", "gemma2",
        gemma_config(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, head_dim=128,
                     num_key_value_heads=1, intermediate_size=40, query_pre_attn_scalar=40,
                     attn_logit_softcapping=2.0, final_logit_softcapping=2.0, sliding_window=8),
        GEMMA2_SWITCHES + [{"query_pre_attn_scalar": 128}], style="v5",
    ),
    # 8 heads on 1, of 6 values each; tied; a window stated but not used.
    Tiny(
        "qwen2-mqa81", "qwen2",
        qwen_config(hidden_size=48, num_attention_heads=8, num_key_value_heads=1, intermediate_size=40,
                    tie_word_embeddings=True),
        BIAS_SWITCHES + [{"rope.rope_theta": 10000.0}], cases=FAR_OUT, style="hub",
    ),
    Tiny(
        "qwen2-untied", "qwen2",
        qwen_config(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=56,
                    tie_word_embeddings=False),
        BIAS_SWITCHES + [{"rope.rope_theta": 10000.0}], style="v5",
    ),
    # The window used, from layer 1 on.
    Tiny(
        "qwen2-window", "qwen2",
        qwen_config(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                    intermediate_size=40, tie_word_embeddings=True, use_sliding_window=True,
                    sliding_window=8, max_window_layers=1),
        BIAS_SWITCHES + [{"sliding_window": 7}, {"sliding_window": 9}, {"max_window_layers": 0},
                         {"max_window_layers": 2}], style="hub", gguf=False,
    ),
    # Norms of q and k, own head, 4 heads of 64 on 1.
    Tiny(
        "qwen3-untied", "qwen3",
        qwen_config(hidden_size=16, num_attention_heads=4, num_key_value_heads=1, head_dim=64,
                    intermediate_size=32, tie_word_embeddings=False),
        QK_NORM_SWITCHES + [{"rope.rope_theta": 10000.0}], style="v5",
    ),
    Tiny(
        "qwen3-tied", "qwen3",
        qwen_config(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                    intermediate_size=40, tie_word_embeddings=True),
        QK_NORM_SWITCHES + [{"rope.rope_theta": 10000.0}], cases=FAR_OUT, style="hub",
    ),
    Tiny(
        "mistral-full", "mistral", mistral_config(sliding_window=None),
        [{"rope.rope_theta": 10000.0}, {"sliding_window": 8}], style="v5",
    ),
    # Mistral 7B v0.1: every layer has the window.
    Tiny(
        "mistral-window", "mistral", mistral_config(sliding_window=8),
        [{"sliding_window": 7}, {"sliding_window": 9}, {"sliding_window": None}],
        style="hub", gguf=False,
    ),
    # Text and vision in one checkpoint, in the older and the newer form.
    Tiny(
        "gemma3-vision", "gemma3",
        gemma3_config(hidden_size=16, head_dim=16, num_hidden_layers=6, num_attention_heads=2,
                      num_key_value_heads=1, intermediate_size=24, query_pre_attn_scalar=16, factor=8.0),
        GEMMA3_SWITCHES + FACTOR_SWITCHES, style="hub", gguf=False, wrap="language_model.model.",
    ),
    Tiny(
        "gemma3-vision5", "gemma3",
        gemma3_config(hidden_size=16, head_dim=16, num_hidden_layers=6, num_attention_heads=2,
                      num_key_value_heads=1, intermediate_size=24, query_pre_attn_scalar=16, factor=8.0),
        GEMMA3_SWITCHES + FACTOR_SWITCHES, style="v5", gguf=False, wrap="model.language_model.",
    ),
]


# --- making one ---------------------------------------------------------------------------


def build_config(tiny: Tiny, changes: dict | None = None):
    """The family's config; `changes` replaces fields, "rope.a.b" those inside rope_parameters."""
    values = copy.deepcopy(tiny.config)
    for key, value in (changes or {}).items():
        place, *path = key.split(".")
        if place == "rope":
            target = values["rope_parameters"]
            for part in path[:-1]:
                target = target[part]
            target[path[-1]] = value
        else:
            values[place] = value
    return FAMILIES[tiny.family].config(**values, attn_implementation="eager", dtype="float32")


def build_model(tiny: Tiny, weights: dict | None = None, changes: dict | None = None):
    model = FAMILIES[tiny.family].model(build_config(tiny, changes)).float().eval()
    if weights is not None:
        model.load_state_dict(weights)
    round_embed_scale(model)
    exact_rope(model)
    return model


def randomize(model, family: Family, seed: int) -> None:
    """Weights spread widely enough that every part of the network shows in the logits."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std, mean=0.0):
        return torch.randn(shape, generator=generator) * std + mean

    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                weight.copy_(normal(weight.shape, 0.3, 1.0) - family.norm_offset)
            elif name.endswith("embed_tokens.weight"):
                weight.copy_(normal(weight.shape, 0.25))
            elif name.endswith("bias"):
                weight.copy_(normal(weight.shape, 0.5))
            else:
                weight.copy_(normal(weight.shape, family.gain / weight.shape[1] ** 0.5))


def make_ids(tiny: Tiny, length: int, seed: int) -> list[int]:
    bos = FAMILIES[tiny.family].bos
    ids = np.random.default_rng(seed).integers(3, tiny.config["vocab_size"], length).tolist()
    return ids if bos is None else [bos, *ids[1:]]


@torch.no_grad()
def prefill(model, ids: list[int], offset: int = 0, positions=None) -> torch.Tensor:
    place = torch.arange(offset, offset + len(ids))[None]
    logits = model(torch.tensor([ids]), position_ids=place, use_cache=False).logits[0]
    return logits if positions is None else logits[positions]


@torch.no_grad()
def in_chunks(model, ids: list[int], size: int) -> torch.Tensor:
    cache, rows = DynamicCache(config=model.config), []
    for begin in range(0, len(ids), size):
        step = model(torch.tensor([ids[begin : begin + size]]), past_key_values=cache, use_cache=True)
        rows.append(step.logits[0])
    return torch.cat(rows)


def greedy_ids(model, ids: list[int], count: int = 12) -> tuple[list[int], float]:
    """The ids that follow, and the least distance between the two highest logits on the way.

    Ends before a choice closer than CLEAR: rounding must not decide a golden.
    """
    out, margin = [], float("inf")
    for _ in range(count):
        best = prefill(model, ids + out)[-1].topk(2)
        distance = (best.values[0] - best.values[1]).item()
        if distance < CLEAR:
            break
        margin = min(margin, distance)
        out.append(int(best.indices[0]))
    return out, margin


def check_switches(tiny: Tiny, weights: dict, ids: list[int], logits: torch.Tensor) -> None:
    for changes in tiny.must_matter:
        fills = {k.removeprefix("fill."): v for k, v in changes.items() if k.startswith("fill.")}
        other_weights = dict(weights)
        for ending, value in fills.items():
            for name in [name for name in weights if name.endswith(ending)]:
                other_weights[name] = torch.full_like(weights[name], value)
        overrides = {k: v for k, v in changes.items() if not k.startswith("fill.")}
        other = prefill(build_model(tiny, other_weights, overrides), ids)
        change = (other - logits).abs().max().item()
        print(f"  {str(changes):58s} changes a logit by {change:7.3f}")
        assert change > MATTERS, f"{tiny.name}: {changes} has no visible effect"


def check_caps(tiny: Tiny, model, ids: list[int]) -> None:
    """Scores [batch, heads, rows, columns] and logits [batch, rows, vocab] go well beyond their caps."""
    if not getattr(model.config, "attn_logit_softcapping", None):
        return
    beyond, tanh = {3: 0.0, 4: 0.0}, torch.tanh

    def record(x):
        beyond[x.dim()] = max(beyond[x.dim()], x.abs().max().item())
        return tanh(x)

    torch.tanh = record  # of the model, only softcap calls it
    try:
        prefill(model, ids)
    finally:
        torch.tanh = tanh
    print(f"  |score| / cap up to {beyond[4]:.2f}, |logit| / cap up to {beyond[3]:.2f}")
    assert min(beyond.values()) > BEYOND, f"{tiny.name}: caps do not bite"


def hub_style(config: dict, family: str) -> dict:
    """config.json as published before transformers 5: flat RoPE fields, torch_dtype."""
    flat = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    flat["torch_dtype"] = config["dtype"]
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    flat["rope_theta"] = full["rope_theta"]
    scaling = {k: v for k, v in full.items() if k != "rope_theta"}
    flat["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    if family.startswith("gemma3"):
        flat["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        flat["sliding_window_pattern"] = flat.pop("_sliding_window_pattern", 6)
    if family == "gemma":  # as published: the older name, which means the tanh form too
        flat |= {"hidden_act": "gelu", "hidden_activation": None}
    if family.startswith("qwen") and not flat["use_sliding_window"]:
        flat["sliding_window"] = 8  # stated but not used, as in the published files
    return dict(sorted(flat.items()))


def save_huggingface(tiny: Tiny, model, folder: Path) -> None:
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if tiny.style == "hub":
        config = hub_style(config, tiny.family)
    if tiny.omit_head_dim:
        del config["head_dim"]
    if tiny.wrap:
        config = wrap_multimodal(config, folder, tiny.wrap)
    path.write_text(json.dumps(config, indent=1) + "\n")


def check_reload(tiny: Tiny, folder: Path, ids: list[int], logits: torch.Tensor) -> None:
    if tiny.wrap:
        model = reload_multimodal(folder)
        text = model.model.language_model
    else:
        model = text = FAMILIES[tiny.family].model.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    round_embed_scale(text)
    exact_rope(text)
    assert torch.equal(prefill(model, ids), logits), f"{tiny.name}: the saved folder differs"


def gguf_tensors(tiny: Tiny, model) -> dict[str, np.ndarray]:
    """GGUF name -> float32 array, in the converter's order (that of the state dict)."""
    family, config = FAMILIES[tiny.family], model.config
    names = gguf.get_tensor_name_map(family.arch, config.num_hidden_layers)
    tensors = {}
    if config.rope_parameters.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = as_float32(llama3_factors(config.rope_parameters, config.head_dim))
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new_name, name
        tensors[new_name] = as_float32(family.stored(name, weight, config))
    return tensors


def save_gguf(tiny: Tiny, model, path: Path) -> None:
    family = FAMILIES[tiny.family]
    writer = GGUFWriter(path, gguf.MODEL_ARCH_NAMES[family.arch])
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(tiny.name)
    config = copy.copy(model.config)
    config.omit_head_dim = tiny.omit_head_dim
    family.add_keys(writer, config)
    family.add_vocab(writer, tiny.config["vocab_size"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, array in gguf_tensors(tiny, model).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(tiny: Tiny, out: Path, seed: int) -> None:
    family, folder = FAMILIES[tiny.family], out / tiny.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(tiny.name)
    model = build_model(tiny)
    randomize(model, family, seed)
    weights = copy.deepcopy(model.state_dict())

    ids = make_ids(tiny, 40, seed)
    logits = prefill(model, ids)
    noise = max((in_chunks(model, ids, n) - logits).abs().max().item() for n in (1, 3, 11))
    print(f"  logits {logits.min():.2f} to {logits.max():.2f}, spread {logits.std():.2f}; "
          f"token by token differs by {noise:.1e}")
    assert noise < AGREEMENT
    check_switches(tiny, weights, ids, logits)
    check_caps(tiny, model, ids)

    cases = []
    for number, case in enumerate(tiny.cases):
        # An offset case repeats the first ids: RoPE is relative, so the logits must agree.
        case_ids = ids if case.length == len(ids) else make_ids(tiny, case.length, seed + number)
        rows = prefill(model, case_ids, case.position_offset, case.positions)
        if case.position_offset:
            assert (rows - logits).abs().max() < AGREEMENT, "RoPE is not relative"
        np.save(folder / f"{case.name}.npy", as_float32(rows))
        cases.append({
            "name": case.name, "position_offset": case.position_offset, "ids": case_ids,
            "positions": case.positions or list(range(case.length)), "logits": f"{case.name}.npy",
        })
    continuation, margin = greedy_ids(model, ids)
    print(f"  greedy {continuation}, least margin {margin:.3f}")

    save_huggingface(tiny, model, folder)
    check_reload(tiny, folder, ids, logits)
    if tiny.gguf:
        save_gguf(tiny, model, folder / "model.gguf")
    scale = bfloat16(model.config.hidden_size**0.5) if family.arch.name.startswith("GEMMA") else 1.0
    write_json(folder / "expected.json", {
        "about": "logits of float32 transformers, one prefill, float64 rotary angles, embed scale "
        f"as given; tools/goldens/tiny_models.py; {versions()}",
        "forms": ["gguf", "folder"] if tiny.gguf else ["folder"],
        "embed_scale": scale,
        "step_by_step_max_difference": float(f"{noise:.2g}"),
        "cases": cases,
        "greedy": {"ids": ids, "continuation_ids": continuation, "least_margin": round(margin, 4)},
    })
    print(f"  {sum(file.stat().st_size for file in folder.iterdir()):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--out", type=Path, default=FIXTURES / "tiny")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    for index, tiny in enumerate(MODELS):
        if not arguments.names or tiny.name in arguments.names:
            make(tiny, arguments.out, seed=1000 + index)


if __name__ == "__main__":
    main()
