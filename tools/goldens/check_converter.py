"""Compares each tiny model.gguf with what llama.cpp's own converter makes of the same folder.

Every tensor must have the same name, shape, type and values; every key outside general.* and
tokenizer.* must be equal. The few keys that are allowed to differ are listed with the reason.

    python tools/goldens/check_converter.py LLAMA_CPP_SOURCES
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

CONVERTER = Path(sys.argv[1]).resolve()
sys.path[:0] = [str(CONVERTER / "gguf-py"), str(CONVERTER)]

import conversion  # noqa: E402
import gguf  # noqa: E402

TINY = Path(__file__).resolve().parents[2] / "tests/fixtures/tiny"
ALLOWED = {
    "rope.freq_base_swa": "older Gemma 3 files lack it",
    "attention.key_length": "older Llama files lack it",
    "attention.value_length": "older Llama files lack it",
    "attention.scale": "the converter has no key for query_pre_attn_scalar",
    "attention.sliding_window_pattern": "an optional key",
}


def convert(folder: Path, out: Path) -> Path:
    """Runs the converter without its vocabulary step, which needs the original tokenizer files."""
    work = out / folder.name
    shutil.copytree(folder, work)
    config = json.loads((work / "config.json").read_text())
    # Gemma 3's converter reads the number of pieces from here.
    pieces = {str(i): i for i in range(config["vocab_size"])}
    dummy = {"model": {"vocab": pieces}, "added_tokens": []}
    (work / "tokenizer.json").write_text(json.dumps(dummy))
    hparams = conversion.ModelBase.load_hparams(work, False)
    model_class = conversion.get_model_class(hparams["architectures"][0])
    model_class.set_vocab = lambda self: None
    path = out / f"{folder.name}.gguf"
    model_class(work, gguf.LlamaFileType.ALL_F32, path, hparams=hparams).write()
    return path


def keys(reader: gguf.GGUFReader) -> dict:
    skip = ("GGUF.", "general.", "tokenizer.")
    return {k: v.contents() for k, v in reader.fields.items() if not k.startswith(skip)}


def compare(ours: gguf.GGUFReader, theirs: gguf.GGUFReader) -> list[str]:
    wrong = []
    a, b = keys(ours), keys(theirs)
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            short = key.partition(".")[2]
            note = f"allowed: {ALLOWED[short]}" if short in ALLOWED else "DIFFERS"
            print(f"  {key}: {a.get(key)} here, {b.get(key)} there; {note}")
            if short not in ALLOWED:
                wrong.append(key)
    x, y = ({t.name: t for t in reader.tensors} for reader in (ours, theirs))
    for name in sorted(x.keys() | y.keys()):
        if name not in x or name not in y:
            wrong.append(f"{name} missing")
            continue
        same = x[name].tensor_type == y[name].tensor_type and list(x[name].shape) == list(y[name].shape)
        # The converter computes llama3's factors in float32.
        tolerance = 1e-5 if name == "rope_freqs.weight" else 0
        if not same or not np.allclose(x[name].data, y[name].data, rtol=tolerance, atol=0):
            wrong.append(name)
    return wrong


def main() -> None:
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for folder in sorted(path.parent for path in TINY.glob("*/model.gguf")):
            theirs = gguf.GGUFReader(str(convert(folder, Path(temporary))))
            print(folder.name, flush=True)
            wrong = compare(gguf.GGUFReader(str(folder / "model.gguf")), theirs)
            failed += bool(wrong)
            print(f"  {'wrong: ' + ', '.join(wrong) if wrong else 'as the converter writes it'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
