"""Chat templates and small pieces of the Jinja language, with what they render to.

Writes tests/fixtures/templates/cases.json: a list of
    {"name", "template" (file beside it) or "source", "context", "expected" or "error"}
`context` is what the template sees: messages, bos_token, add_generation_prompt, tools, or
plain variables. "wall_clock" (seconds since 1970) is the time that strftime_now gives;
without it the function is undefined. `error` is the message; "raised": true where the template raised it itself
(raise_exception), so that the text must reach the user. "rare": true marks features that no
published chat template is known to use.

Rendered by the environment of `transformers` (jinja2 ImmutableSandboxedEnvironment with
trim_blocks, lstrip_blocks, loop controls, a tojson that escapes no HTML). smollm2.jinja is
taken from the model file; the other templates are as published with the models, see NOTICE.md
beside them.

    python tools/goldens/templates.py
"""

from datetime import datetime, timezone

import jinja2
from gguf import GGUFReader
from transformers.utils.chat_template_utils import _compile_jinja_template

from reference import FIXTURES, model_folder, versions, write_json
from template_conversations import CONVERSATIONS, SPECIFIC
from template_language import LANGUAGE, RARE

FOLDER = FIXTURES / "templates"
# name: bos_token, eos_token
PIECES = {
    "gemma3": ("<bos>", "<eos>"),
    "gemma2": ("<bos>", "<eos>"),
    "smollm2": ("<|im_start|>", "<|im_end|>"),
    "qwen2.5": (None, "<|im_end|>"),
    "gemma1": ("<bos>", "<eos>"),
    "llama2": ("<s>", "</s>"),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3.1": ("<|begin_of_text|>", "<|eot_id|>"),
    "llama3.2": ("<|begin_of_text|>", "<|eot_id|>"),
    "mistral-v0.1": ("<s>", "</s>"),
    "mistral-v0.2": ("<s>", "</s>"),
    "mistral-v0.3": ("<s>", "</s>"),
    "qwen3": (None, "<|im_end|>"),
}


def clock(seconds: int | None):
    if seconds is None:
        return jinja2.Undefined(name="strftime_now")
    return datetime.fromtimestamp(seconds, timezone.utc).strftime


def render(source: str, context: dict, wall_clock: int | None = None) -> dict:
    try:
        return {"expected": _compile_jinja_template(source).render(strftime_now=clock(wall_clock), **context)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": error.message or str(error), **({"raised": True} if raised else {})}
    except (ArithmeticError, TypeError, ValueError) as error:
        return {"error": str(error)}


def save_smollm2_template() -> None:
    reader = GGUFReader(str(model_folder() / "smollm2-135m-instruct.gguf"))
    text = reader.get_field("tokenizer.chat_template").contents()
    (FOLDER / "smollm2.jinja").write_text(text, encoding="utf-8")


def main() -> None:
    save_smollm2_template()
    cases = []
    for template, (bos, eos) in PIECES.items():
        source = (FOLDER / f"{template}.jinja").read_text(encoding="utf-8")
        for name, messages, extra in CONVERSATIONS + SPECIFIC[template]:
            context = {"messages": messages, "bos_token": bos, "eos_token": eos, "add_generation_prompt": True, **extra}
            time = {"wall_clock": context.pop("wall_clock")} if "wall_clock" in context else {}
            cases.append({"name": f"{template}: {name}", "template": f"{template}.jinja", **time,
                          "context": context, **render(source, context, **time)})
    for name, source, context in LANGUAGE:
        rare = {"rare": True} if name in RARE else {}
        cases.append({"name": name, **rare, "source": source, "context": context, **render(source, context)})
    assert RARE <= {name for name, *_ in LANGUAGE}
    write_json(FOLDER / "cases.json", {
        "about": f"tools/goldens/templates.py; jinja2 {jinja2.__version__}, {versions()}",
        "cases": cases,
    })
    for case in cases:
        if "error" in case or "source" in case:
            shown = case.get("expected", "ERROR " + case.get("error", ""))
            print(f"{case['name']:40s} {shown!r}")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
