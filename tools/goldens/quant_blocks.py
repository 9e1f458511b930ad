"""Random blocks of each GGUF tensor type and what they dequantize to.

Writes, for each type, `tests/fixtures/quant/<type>.blocks` (64 raw blocks; F16 and
BF16: 2,048 values) and `<type>.f32` (little-endian float32, the values that
`gguf.quants.dequantize` gives for those bytes, in storage order).

All bytes are uniformly random but the half-precision scales, which are finite:
block 0 has scale +0, block 1 -0, block 2 the smallest subnormal, block 3 the
largest negative subnormal, block 4 the largest finite value; the others have a
random sign and a magnitude spread evenly in log2 between 2^-12 and 2^2.

gguf multiplies in float32 without fused operations: `(d * scale) * q - (dmin * m)`.
A decoder that rounds in that order reproduces the values bit for bit.

    python tools/goldens/quant_blocks.py
"""

import argparse
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

BLOCKS = 64
SEED = 20240501

# type -> byte offsets of its float16 fields inside a block
SCALE_OFFSETS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
SPECIAL_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF], np.uint16)
SPECIAL_BFLOATS = np.array([0x0000, 0x8000, 0x0001, 0x807F, 0x7F7F], np.uint16)


def random_scales(rng: np.random.Generator, n: int) -> np.ndarray:
    """`n` finite float16 bit patterns, the special values first."""
    magnitude = np.exp2(rng.uniform(-12, 2, n)) * rng.choice([-1.0, 1.0], n)
    bits = magnitude.astype(np.float16).view(np.uint16)
    bits[: len(SPECIAL_HALVES)] = SPECIAL_HALVES
    return bits


def quantized_blocks(rng: np.random.Generator, name: str) -> np.ndarray:
    """uint8 [BLOCKS, block_bytes]."""
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, (BLOCKS, block_bytes), dtype=np.uint8)
    for field, offset in enumerate(SCALE_OFFSETS[name]):
        # Rolled by one per field: a special scale never meets the same special minimum.
        bits = np.roll(random_scales(rng, BLOCKS), field)
        blocks[:, offset : offset + 2] = bits.astype("<u2").view(np.uint8).reshape(BLOCKS, 2)
    return blocks


def float_values(rng: np.random.Generator, name: str) -> np.ndarray:
    """uint8 [BLOCKS, 64]: every exponent occurs, no infinity and no NaN."""
    bits = rng.integers(0, 1 << 16, BLOCKS * 32, dtype=np.uint16)
    exponent = 0x7C00 if name == "F16" else 0x7F80
    bits[(bits & exponent) == exponent] &= np.uint16(0x8000 | (~exponent & 0xFFFF))
    bits[:5] = SPECIAL_HALVES if name == "F16" else SPECIAL_BFLOATS
    return bits.astype("<u2").view(np.uint8).reshape(BLOCKS, 64)


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=root / "tests/fixtures/quant")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate([*SCALE_OFFSETS, "F16", "BF16"]):
        rng = np.random.default_rng([SEED, index])
        make = quantized_blocks if name in SCALE_OFFSETS else float_values
        blocks = make(rng, name)
        values = dequantize(blocks, GGMLQuantizationType[name]).astype("<f4").ravel()
        assert np.isfinite(values).all(), name
        (out / f"{name.lower()}.blocks").write_bytes(blocks.tobytes())
        (out / f"{name.lower()}.f32").write_bytes(values.tobytes())
        print(f"{name:7s} {blocks.size:6d} bytes  {values.size:6d} values")


if __name__ == "__main__":
    main()
