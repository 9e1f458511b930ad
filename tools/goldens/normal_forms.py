#!/usr/bin/env python3
"""Texts and their composed form (NFC) by Python's unicodedata: tests/fixtures/tokenizer/nfc.json.

Every character that NFC changes, every pair that it joins, and random runs of marks behind letters.
"""
import json
import os
import random
import sys
import unicodedata

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests/fixtures/tokenizer/nfc.json")


def main():
    characters = [chr(code) for code in range(0x20, 0x110000)
                  if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    hangul = range(0xAC00, 0xD7A4)
    texts = [c for c in characters if unicodedata.normalize("NFC", c) != c]
    pairs = [unicodedata.normalize("NFD", c) for c in characters if ord(c) not in hangul]
    texts += [text for text in pairs if unicodedata.normalize("NFC", text) != text]
    texts += [unicodedata.normalize("NFD", chr(code)) for code in hangul[::97]]
    # U+11A7 and its like: the neighbours of the conjoining jamo, which join nothing.
    for vowel in "\uac00", "\u1100\u1161", "\uac01":
        texts += [vowel + odd + "\u0301" for odd in "\u11a7\u11c2\u11c3\u1160\u1161\u1175\u1176\u1112\u1113"]
    marks = [c for c in characters if unicodedata.combining(c)]
    generator = random.Random(8)
    letters = "aeoqu\u00e9\u0928\u09c7\u1112\u1161\uac00\u304b\u4e2d\u0300\u1100 "
    for _ in range(400):
        text = ""
        for _ in range(generator.randint(1, 4)):
            text += generator.choice(letters) + "".join(generator.choices(marks, k=generator.randint(0, 5)))
        texts.append(text)
    lines = [json.dumps([text, unicodedata.normalize("NFC", text)]) for text in texts]
    with open(sys.argv[1] if len(sys.argv) > 1 else OUT, "w", encoding="ascii") as file:
        file.write('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(len(lines), "texts")


if __name__ == "__main__":
    main()
