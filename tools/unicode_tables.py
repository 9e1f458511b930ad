#!/usr/bin/env python3
"""Writes src/text/unicode_ranges.inc: where the class of a code point (letter, number, white space, other) changes.

The pre-tokenizer patterns of byte-level BPE vocabularies ask only for \\p{L}, \\p{N} and \\s. The categories are those
of the Python that runs this (its Unicode version is written into the file); \\s is the White_Space property.
Usage: tools/unicode_tables.py > src/text/unicode_ranges.inc
"""
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}


def class_of(code):
    if code in WHITE_SPACE:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(code))[0], OTHER)


def main():
    changes = []
    previous = None
    for code in range(0x110000):
        current = class_of(code)
        if current != previous:
            changes.append(code << 2 | current)
            previous = current
    print(f"// Made by tools/unicode_tables.py from Unicode {unicodedata.unidata_version}. Not edited by hand.")
    print("// Each entry: (first code point of a range) << 2 | class; 0 other, 1 letter, 2 number, 3 white space.")
    for begin in range(0, len(changes), 12):
        print(" ".join(f"0x{change:x}," for change in changes[begin:begin + 12]))


if __name__ == "__main__":
    main()
