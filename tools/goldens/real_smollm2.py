"""Goldens of the real SmolLM2 135M Instruct (Q4_1): tests/fixtures/real/smollm2.json.

A chat of three user turns, each answered greedily (to <|im_end|>, 64 tokens at most) and fed
back, as rendered by the file's own template; top-50 log probabilities at eight positions of
two prompts. Needs `smollm2-135m-instruct.gguf` in $CARAT_MODELS.

    python tools/goldens/real_smollm2.py
"""

import torch
from transformers.utils.chat_template_utils import _compile_jinja_template

from real_gemma import case, spread
from reference import (
    FIXTURES, encode, load_gguf, model_folder, sha256, versions, write_json,
)

BOS_TOKEN, EOS_TOKEN, EOS = "<|im_start|>", "<|im_end|>", 2
ANSWER_LIMIT = 64
TURNS = [
    "What is the capital of France?",
    "Name one famous museum there.",
    "Write a short sentence about it.",
]
PROMPTS = {
    "prose": "The old library stood at the end of the street, its windows dark and its door half open. Inside,",
    "code": "def is_even(n):\n    return n % 2 == 0\n\nfor i in range(10):\n    if is_even(i):\n",
}


@torch.no_grad()
def answer(model, ids: list[int]) -> tuple[list[int], float]:
    """Greedy ids up to and with EOS, and the least lead (nats) of a choice over the next best."""
    cache, feed, out, margin = None, ids, [], float("inf")
    while len(out) < ANSWER_LIMIT and (not out or out[-1] != EOS):
        step = model(torch.tensor([feed]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = step.past_key_values
        best = step.logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        feed = [int(best.indices[0])]
        out += feed
    return out, margin


def main() -> None:
    torch.set_num_threads(2)
    path = model_folder() / "smollm2-135m-instruct.gguf"
    model, tokenizer = load_gguf(path)
    template = _compile_jinja_template(tokenizer.chat_template)

    messages, turns = [], []
    for question in TURNS:
        messages.append({"role": "user", "content": question})
        text = template.render(messages=messages, bos_token=BOS_TOKEN, eos_token=EOS_TOKEN,
                               add_generation_prompt=True)
        ids = encode(tokenizer, text)
        out, margin = answer(model, ids)
        ended = out[-1] == EOS
        content = tokenizer.decode(out[:-1] if ended else out)
        print(f"{question!r} -> {content!r} ({len(out)} ids, least margin {margin:.3f})", flush=True)
        turns.append({"messages": list(messages), "prompt": text, "ids": ids, "answer_ids": out,
                      "answer": content, "ended": ended, "least_margin": round(margin, 4)})
        messages.append({"role": "assistant", "content": content})

    cases = []
    for name, text in PROMPTS.items():
        ids = encode(tokenizer, text)
        cases.append(case(model, tokenizer, name, text, ids, spread(len(ids))))
    write_json(FIXTURES / "real/smollm2.json", {
        "about": "SmolLM2 135M Instruct (Q4_1) dequantized to float32. turns: greedy answers (with "
        "the end id where one came) to `prompt`, the file's template rendered over `messages`. "
        "cases: log probabilities of the 50 likeliest next ids after each of `positions`; no BOS. "
        f"tools/goldens/real_smollm2.py; {versions()}",
        "model_sha256": sha256(path),
        "turns": turns,
        "cases": cases,
    })


if __name__ == "__main__":
    main()
