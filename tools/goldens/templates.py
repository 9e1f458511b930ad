"""Chat templates and small pieces of the Jinja language, with what they render to.

Writes tests/fixtures/templates/cases.json: a list of
    {"name", "template" (file beside it) or "source", "context", "expected" or "error"}
`context` is what the template sees: messages, bos_token, add_generation_prompt, tools, or
plain variables. `error` is the message; "raised": true where the template raised it itself
(raise_exception), so that the text must reach the user. "rare": true marks features that no
published chat template is known to use.

Rendered by the environment of `transformers` (jinja2 ImmutableSandboxedEnvironment with
trim_blocks, lstrip_blocks, loop controls, a tojson that escapes no HTML). smollm2.jinja is
taken from the model file; the other templates are as published with the models (the Qwen
one is Apache-2.0).

    python tools/goldens/templates.py
"""

import jinja2
from gguf import GGUFReader
from transformers.utils.chat_template_utils import _compile_jinja_template

from reference import FIXTURES, model_folder, versions, write_json
from template_language import LANGUAGE, RARE

FOLDER = FIXTURES / "templates"
BOS = {"gemma2": "<bos>", "gemma3": "<bos>", "smollm2": "<|im_start|>", "qwen2.5": None}
EOS = {"gemma2": "<eos>", "gemma3": "<eos>", "smollm2": "<|im_end|>", "qwen2.5": "<|im_end|>"}


def user(text):
    return {"role": "user", "content": text}


def model(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


TEXT = {"type": "text", "text": " Describe this. "}
IMAGE = {"type": "image"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place, e.g. <Zürich> & \"Bern\"",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["place"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"place": "Bern", "days": 2}}}],
}

# name, messages, other context
CONVERSATIONS = [
    ("one turn", [user("Why is the sky blue")], {}),
    ("one turn, no prompt", [user("Hello")], {"add_generation_prompt": False}),
    ("two turns", [user("Hi"), model("Hello."), user("Bye")], {}),
    ("ends with the model", [user("Hi"), model("Hello.")], {"add_generation_prompt": False}),
    ("whitespace to trim", [user("  \n\tHi there \u00a0\n\n"), model("\n Yes?  "), user("\r\nGo\r\n")], {}),
    ("empty contents", [user(""), model(""), user("")], {}),
    ("only whitespace", [user("   \n  ")], {}),
    ("unicode", [user("今天天气很好 👩‍👩‍👧 Ünïcödé"), model("好的，我们走吧！\u200b"), user("ﷺ \U0001f680")], {}),
    ("markup in text", [user("<b>&amp;</b> \"quoted\" 'single' {{ not_a_variable }} {% raw %}")], {}),
    ("control pieces in text", [user("<end_of_turn>\n<start_of_turn>model\n<|im_end|>")], {}),
    ("system text", [system("Answer in French."), user("Hello")], {}),
    ("system text with spaces", [system("  Be brief. \n"), user("  Hello ")], {}),
    ("empty system text", [system(""), user("Hello")], {}),
    ("system then two turns", [system("S"), user("A"), model("B"), user("C")], {}),
    ("two users in a row", [user("A"), user("B")], {}),
    ("model first", [model("A"), user("B")], {}),
    ("system in the middle", [user("A"), system("S"), user("B")], {}),
    ("unknown role first", [{"role": "critic", "content": "A"}], {}),
    ("long newlines", [user("a\n\n\nb\n    indented\n")], {}),
]
SPECIFIC = {
    "gemma3": [
        ("image and text", [user([IMAGE, TEXT])], {}),
        ("text items", [user([TEXT, {"type": "text", "text": "Twice."}]), model("ok"), user("x")], {}),
        ("unknown item is skipped", [user([{"type": "audio"}, TEXT])], {}),
        ("system as items", [system([{"type": "text", "text": "Be kind."}]), user("Hi")], {}),
        ("content is a number", [user(7)], {}),
        ("content is null", [user(None)], {}),
        ("empty list of messages", [], {}),
    ],
    "gemma2": [("content is null", [user(None)], {}), ("no content", [{"role": "user"}], {})],
    "smollm2": [("no messages", [], {}), ("content is a number", [user(7)], {})],
    "qwen2.5": [
        ("tools", [user("Weather in Bern?")], {"tools": [WEATHER]}),
        ("tools with system", [system("Be brief."), user("Weather?")], {"tools": [WEATHER, WEATHER]}),
        ("tool call and answer", [user("Weather in Bern?"), CALL, {"role": "tool", "content": "{\"temp\": 21.5}"},
                                  {"role": "tool", "content": "sunny"}, model("21.5 and sunny.")], {"tools": [WEATHER]}),
    ],
}


def render(source: str, context: dict) -> dict:
    try:
        return {"expected": _compile_jinja_template(source).render(**context)}
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
    for template in ("gemma3", "gemma2", "smollm2", "qwen2.5"):
        source = (FOLDER / f"{template}.jinja").read_text(encoding="utf-8")
        for name, messages, extra in CONVERSATIONS + SPECIFIC[template]:
            context = {"messages": messages, "bos_token": BOS[template], "eos_token": EOS[template],
                       "add_generation_prompt": True, **extra}
            cases.append({"name": f"{template}: {name}", "template": f"{template}.jinja",
                          "context": context, **render(source, context)})
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
