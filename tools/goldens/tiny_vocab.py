"""Minimal vocabularies for the tiny models, in the form llama.cpp's converter writes."""

from gguf import GGUFWriter, TokenType


def sentencepiece_vocab(writer: GGUFWriter, size: int) -> None:
    """Gemma-like: control pieces, newline runs, 256 byte pieces, letters and a few merges.

    `size` is at least 279; pieces beyond the listed ones are unused. Scores fall with the
    id, so earlier merges win, as in a trained SentencePiece BPE.
    """
    special = [
        ("<pad>", TokenType.CONTROL), ("<eos>", TokenType.CONTROL), ("<bos>", TokenType.CONTROL),
        ("<unk>", TokenType.UNKNOWN), ("<start_of_turn>", TokenType.CONTROL),
        ("<end_of_turn>", TokenType.CONTROL), ("\n", TokenType.USER_DEFINED),
        ("\n\n", TokenType.USER_DEFINED),
    ]
    merges = ["▁t", "he", "▁the", "in", "▁a", "an", "er", "on", "▁▁"]
    letters = list("▁etaonisrhldu")
    pieces = [(text, 0.0, kind) for text, kind in special]
    pieces += [(f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)]
    pieces += [(text, -float(rank), TokenType.NORMAL) for rank, text in enumerate(merges + letters)]
    pieces += [(f"<unused{i}>", -1000.0, TokenType.UNUSED) for i in range(size - len(pieces))]
    assert len(pieces) == size
    tokens, scores, kinds = zip(*pieces)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(tokens))
    writer.add_token_scores(list(scores))
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def byte_characters() -> list[str]:
    """The 256 printable characters GPT-2 writes bytes with, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def byte_level_vocab(writer: GGUFWriter, size: int, pre: str = "smollm") -> None:
    """SmolLM2-like: three control tokens, the 256 bytes, merges. `size` is at most 289."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = """Ġ t|h e|i n|Ġ a|Ġt he|o n|e r|a n|r e|Ġ s|a t|e n|Ġ o|Ġ w|i s|i t|Ġ c|e s|Ġ b|Ġ p|
        o r|Ġ f|Ġo f|a l|Ġ in|an d|Ġ and|in g|Ġ m|o u"""
    merges = [pair.strip() for pair in merges.split("|")][: size - len(control) - 256]
    tokens = control + byte_characters() + [pair.replace(" ", "") for pair in merges]
    assert len(tokens) == size and len(set(tokens)) == size
    kinds = [TokenType.CONTROL] * len(control) + [TokenType.NORMAL] * (size - len(control))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
