#!/usr/bin/env python3
"""Small vocabularies of every kind that Hugging Face folders hold, and what the libraries make of random texts.

Usage: small_tokenizers.py [OUT [COUNT]]     (pip install tokenizers sentencepiece protobuf)

Trains vocabularies of 600 to 1,000 pieces with `tokenizers` and `sentencepiece` and writes, for each, a folder
OUT/NAME with tokenizer.json or tokenizer.model and cases.json: COUNT texts with their ids. Without arguments: the
committed sample, 200 texts each, in tests/fixtures/tokenizer/small. With more, for one thorough comparison:
    small_tokenizers.py /tmp/cases 10000 && CARAT_TOKENIZER_CASES=/tmp/cases text_test --gtest_filter='*SmallTokenizers.*'
"""
import io
import json
import os
import random
import sys
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MARK = "\u2581"
TIKTOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψω",
           "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह",
           "กขคฆงจฉชซญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหอฮ", "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほ",
           "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生", "가나다라마바사아자차카타파하고노도로모보소오조초코토포호",
           "éèêëàâäôöûüçñßøåœæğışžčřł"]
ODD = ["👩‍🏳️", "👍🏽", "🇩🇪", "½", "Ⅷ", "٣٤", "²", "\u00a0", "\u3000", "\u2028", "\u0085", "e\u0301", "q\u0307\u0323", "\u1112\u1161\u11ab", "\u212b", "ſ", "ǅ", "İ", "𝔘𝔫",
       "ᚠᛇᚻ", "𓀀", "ไม่", "क्ष", "\ufeff", "\u200d", "\u00ad", "―", "…", "\t", "\x07", "\x7f"]
WORDS = ["I'll", "don't", "WE'RE", "it'S", "x86", "3.14", "10000", "2024-11-29", "foo_bar", "http://a.b/c?d=e", "C++20",
         "def f(x):", "return x  # ok", "{}", "!!", "...", "'", "''s", "<h1>", "</h1>", "<table>", "<", ">"]
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\n\n\n", " \n ", "\t\t", "     ", ""]


def lexicon():
    generator = random.Random(5)
    return [["".join(generator.choice(script) for _ in range(generator.randint(1, 7))) for _ in range(60)]
            for script in SCRIPTS]


LEXICON = lexicon()


def corpus():
    """Lines that train: an English text, and made-up words of eleven scripts with Zipf's weights."""
    with open(os.path.join(ROOT, "tests/fixtures/real/wiki_16k.txt"), encoding="utf-8") as file:
        lines = file.read().split("\n")
    generator = random.Random(6)
    weights = [1 / (i + 1) for i in range(60)]
    for script in LEXICON:
        for _ in range(25):
            lines.append(" ".join(generator.choices(script, weights, k=12)) + generator.choice(".!?,"))
    for _ in range(40):
        lines.append("    " * generator.randint(1, 3) + "".join(generator.choices(WORDS, k=4)) + "\t\t12 345  67")
    return [line for line in lines if line]


def anything():
    """Characters of every assigned code point below U+30000 that libraries of any age class alike."""
    import regex
    chosen = []
    for code in range(1, 0x30000):
        character = chr(code)
        kind = unicodedata.category(character)
        if kind in ("Cn", "Cs", "Co") or 0x1C <= code <= 0x1F:
            continue
        if bool(regex.match(r"\p{L}", character)) == (kind[0] == "L") and (
                bool(regex.match(r"\p{N}", character)) == (kind[0] == "N")):
            chosen.append(character)
    return chosen


def texts(count, seed, markers, most_spaces):
    """Random texts; `markers` are control tokens and user-defined pieces, which some texts hold."""
    generator = random.Random(seed)
    characters = anything()
    made = ["", " ", "  ", "a", "\n", " a", "a ", "the quick brown fox", "'", MARK, MARK + "a" + MARK * 2 + "b"]
    while len(made) < count:
        parts = []
        style = generator.random()
        for _ in range(generator.randint(1, 6)):
            choice = generator.random()
            if style < 0.15:  # few characters, many ways to merge them
                parts.append("".join(generator.choice("aabe t ") for _ in range(generator.randint(1, 8))))
            elif choice < 0.35:
                parts.append(generator.choice(generator.choice(LEXICON)))
            elif choice < 0.5:
                word = generator.choice(generator.choice(LEXICON[:2]))
                parts.append(generator.choice([word.upper(), word.title(), word * 2]))
            elif choice < 0.6:
                parts.append(generator.choice(WORDS))
            elif choice < 0.7:
                parts.append(generator.choice(ODD))
            elif choice < 0.8:
                parts.append("".join(generator.choice(characters) for _ in range(generator.randint(1, 3))))
            elif choice < 0.86:
                parts.append(str(generator.randint(0, 10 ** generator.randint(1, 9))))
            elif choice < 0.9:
                parts.append(generator.choice("ab \n.1") * generator.randint(2, 12))
            elif choice < 0.94:
                parts.append(generator.choice(markers))
            else:
                parts.append("".join(generator.choice("#$%&()*+,-./:;=?@[]^_`{|}~\"'") for _ in range(3)))
            parts.append(generator.choice(SPACES))
        text = "".join(parts)
        if generator.random() < 0.5:
            text = text.strip()
        while most_spaces and " " * (most_spaces + 1) in text:
            text = text.replace(" " * (most_spaces + 1), " ")
        if MARK * 2 not in text or not most_spaces:
            made.append(text)
    return made[:count]


# ---- the vocabularies: each returns the bytes of its file and a function (text, special) -> ids

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def encoder(tokenizer):
    def encode(text, special):
        tokenizer.encode_special_tokens = not special
        return tokenizer.encode(text, add_special_tokens=False).ids
    return encode


def byte_level(pre_tokenizer, ignore_merges=False, normalizer=None, bos=None, size=800):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    level = processors.ByteLevel(trim_offsets=False)
    if bos:
        template = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                                 special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = processors.Sequence([level, template])
    else:
        tokenizer.post_processor = level
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def saved(tokenizer):
    return "tokenizer.json", tokenizer.to_str().encode(), encoder(tokenizer)


def gpt2():
    return saved(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)))


def llama3():
    return saved(byte_level(split_then_bytes(TIKTOKEN % r"\p{N}{1,3}"), True, bos="<|endoftext|>"))


def dbrx():
    return saved(byte_level(split_then_bytes(TIKTOKEN % r"\p{N}{1,3}"), size=600))


def qwen2():
    return saved(byte_level(split_then_bytes(TIKTOKEN % r"\p{N}"), normalizer=normalizers.NFC()))


def smollm():
    return saved(byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])))


GEMMA_USER = ["\n", "\n\n", "\n\n\n", "\t\t", "<h1>", "</h1>", "<table>"] + [MARK * n for n in range(2, 9)]


def train_sentencepiece(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        allow_whitespace_only_pieces=True, character_coverage=0.995, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def sentencepiece_encoder(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return lambda text, special: processor.encode(text)


def gemma_model():
    return train_sentencepiece(vocab_size=1000, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
                               control_symbols=["<start_of_turn>", "<end_of_turn>"],
                               user_defined_symbols=GEMMA_USER)


def llama_model():
    return train_sentencepiece(vocab_size=900, add_dummy_prefix=True)


def sp_gemma():
    model = gemma_model()
    return "tokenizer.model", model, sentencepiece_encoder(model)


def sp_llama():
    model = llama_model()
    return "tokenizer.model", model, sentencepiece_encoder(model)


def convert(model, prefix, tab):
    """A tokenizer.json from a SentencePiece model in the way the published ones were made."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    names = [piece.piece for piece in proto.pieces]
    if tab and "\t" not in names:
        names[names.index("<0x09>")] = "\t"
    vocabulary = {name: i for i, name in enumerate(names)}
    merges = []
    for name, piece in zip(names, proto.pieces):
        ways = [(name[:i], name[i:]) for i in range(1, len(name)) if name[:i] in vocabulary and name[i:] in vocabulary]
        merges += [(piece.score, len(left), len(right), left, right) for left, right in ways]
    merges.sort(key=lambda way: way[:3], reverse=True)
    unknown = names[proto.trainer_spec.unk_id]
    tokenizer = Tokenizer(models.BPE(vocabulary, [way[3:] for way in merges], unk_token=unknown, fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=piece.type != 4)
                          for name, piece in zip(names, proto.pieces) if piece.type in (2, 3, 4)])
    replace = normalizers.Replace(" ", MARK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replace]) if prefix else replace
    if not prefix:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    bos = names[proto.trainer_spec.bos_id]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, proto.trainer_spec.bos_id)])
    return tokenizer


def json_gemma():
    return saved(convert(gemma_model(), False, True))


def json_llama():
    return saved(convert(llama_model(), True, False))


def json_mistral():
    """The same as json_llama in the newer form: Metaspace instead of a normalizer."""
    tokenizer = convert(llama_model(), True, False)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="first", split=False)
    document = json.loads(tokenizer.to_str())
    document["normalizer"] = None
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    tokenizer = Tokenizer.from_str(data)
    return "tokenizer.json", data.encode(), encoder(tokenizer)


GEMMA_MARKERS = ["<start_of_turn>", "<end_of_turn>", "<bos>", "<unk>", "<h1>", "</h1>", "<table>", "\n\n", "\t\t"]
LLAMA_MARKERS = ["<h1>", "<0x0A>"]
BYTE_MARKERS = SPECIAL + ["<think>"]
# name: (maker, markers, texts with special tokens recognised, most spaces in a run)
VOCABULARIES = {
    "gpt-2": (gpt2, BYTE_MARKERS, True, 0),
    "llama-bpe": (llama3, BYTE_MARKERS, True, 0),
    "dbrx": (dbrx, BYTE_MARKERS, True, 0),
    "qwen2": (qwen2, BYTE_MARKERS, True, 0),
    "smollm": (smollm, BYTE_MARKERS, True, 0),
    "sentencepiece-gemma": (sp_gemma, GEMMA_MARKERS, False, 0),
    "sentencepiece-llama": (sp_llama, LLAMA_MARKERS + ["<s>", "</s>"], False, 0),
    # In a run longer than the longest piece of spaces the library merges where SentencePiece cuts; carat cuts.
    "json-gemma": (json_gemma, GEMMA_MARKERS, True, 8),
    "json-llama": (json_llama, LLAMA_MARKERS, False, 0),
    "json-mistral": (json_mistral, LLAMA_MARKERS, False, 0),
}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests/fixtures/tokenizer/small")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    for seed, (name, (make, markers, both, most_spaces)) in enumerate(VOCABULARIES.items()):
        file_name, data, encode = make()
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, file_name), "wb") as file:
            file.write(data)
        lines = []
        for i, text in enumerate(texts(count, seed, markers, most_spaces)):
            special = both and i % 2 == 1
            case = {"text": text, "ids": encode(text, special)}
            if special:
                case["special"] = True
            lines.append(json.dumps(case, ensure_ascii=False))
        with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
            file.write('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")
        print(f"{name}: {len(data)} bytes, {count} texts", flush=True)


if __name__ == "__main__":
    main()
