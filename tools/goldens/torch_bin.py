"""Writes tests/fixtures/torch_bin: small files of torch.save, good and hostile. Needs torch (2.x).

Every good tensor holds 0, 1, 2, … in its own type, so that the tests can compute what must be read.
"""
import collections
import os
import pathlib
import pickle
import zipfile

import torch

FOLDER = pathlib.Path(__file__).parents[2] / "tests/fixtures/torch_bin"


def count(shape, dtype):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


class Call:
    """Pickles as a call of `function` with `arguments`."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def with_pickle(source, target, data):
    """A copy of the zip `source` whose data.pkl is `data`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for member in old.namelist():
            new.writestr(member, data if member.endswith("/data.pkl") else old.read(member))


def compressed(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, old.read(member))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
             "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
    state = collections.OrderedDict((name, count((3, 5), dtype)) for name, dtype in types.items())
    state["scalar"] = torch.tensor(0.0)
    state["cube"] = count((2, 3, 4), torch.float32)
    state["tied"] = state["f32"]
    state["tail"] = state["cube"].reshape(-1)[20:]
    state["parameter"] = torch.nn.Parameter(count((4,), torch.float32))
    good = FOLDER / "types.bin"
    torch.save(state, good)
    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), FOLDER / "module.bin")  # its OrderedDict has attributes: _metadata
    torch.save({"w": count((3, 5), torch.float32)}, FOLDER / "protocol4.bin", pickle_protocol=4)
    torch.save({"w": count((3, 5), torch.float32).t()}, FOLDER / "strided.bin")
    torch.save({"mask": torch.zeros(3, dtype=torch.bool)}, FOLDER / "bool.bin")
    torch.save({"epoch": 3}, FOLDER / "epoch.bin")
    torch.save(count((3,), torch.float32), FOLDER / "tensor.bin")
    torch.save({"w": count((3,), torch.float32)}, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    compressed(good, FOLDER / "compressed.bin")
    for protocol in (2, 4):
        for name, call in (("system", Call(os.system, "true")), ("eval", Call(eval, "1"))):
            data = pickle.dumps({"w": call}, protocol)
            with_pickle(good, FOLDER / f"{name}{protocol}.bin", data)


if __name__ == "__main__":
    main()
