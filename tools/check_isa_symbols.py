#!/usr/bin/env python3
"""Checks that object files compiled for a wide instruction set leak nothing.

An inline function of a shared header, compiled with AVX-512 and kept by the linker for the whole program, crashes every
machine without AVX-512. So each object under kernels/avx2, avx512, amx and neon must define exactly one strong symbol (its
entry) and no weak, common or unique one.

usage: check_isa_symbols.py OBJECT…   (others than those of ISA folders are ignored)
"""
import re
import subprocess
import sys

ISA_FOLDER = re.compile(r"/kernels/(avx2|avx512|amx|neon)/")
STRONG = set("TDBRS")
WEAK = set("WwVvuC")


def faults_of(path):
    """What is wrong with one object file, one line each."""
    listing = subprocess.run(["nm", "--defined-only", "--demangle", path], capture_output=True, text=True, check=True)
    strong, faults = [], []
    for line in listing.stdout.splitlines():
        _, kind, name = line.split(maxsplit=2)
        if kind in STRONG:
            strong.append(name)
        elif kind in WEAK:
            faults.append(f"{path}: exports the weak symbol {name}; give it internal linkage or inline it always")
    if len(strong) != 1:
        faults.append(f"{path}: exports {len(strong)} strong symbols ({', '.join(strong)}), want one")
    return faults


def main():
    objects = [path for path in sys.argv[1:] if ISA_FOLDER.search(path)]
    if not objects:
        sys.exit("check_isa_symbols: no object of an ISA folder among the arguments")
    faults = [fault for path in objects for fault in faults_of(path)]
    print("\n".join(faults) or f"{len(objects)} objects, one exported symbol each")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
