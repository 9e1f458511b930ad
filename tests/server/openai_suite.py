#!/usr/bin/env python3
"""The real `openai` package, curl and lm-eval against the real models.

Run by `make test-openai`, which gives it an interpreter that has the packages: python3 tests/server/openai_suite.py CARAT
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import openai

CARAT = "build/carat"
MODELS = pathlib.Path(os.environ.get("CARAT_MODELS", pathlib.Path.home() / ".cache/carat/models"))


class Server:
    """carat serve on a free port, as a context."""

    def __init__(self, model, *options):
        self.command = [CARAT, "serve", str(model), "--port", "0", "--json", *options]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = json.loads(self.process.stdout.readline())
        assert line["event"] == "listening", line
        self.url = line["url"]
        for line in self.process.stderr:
            if "ready:" in line:
                break
        else:
            raise RuntimeError("the server ended before it was ready")
        return self

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, **options)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.process.returncode
        for line in output.splitlines():
            json.loads(line)


class Base(unittest.TestCase):
    model = ""
    options = ()

    @classmethod
    def setUpClass(cls):
        path = MODELS / (cls.model + ".gguf")
        if not path.exists():
            raise unittest.SkipTest(f"{path}: run `make models`")
        cls.server = cls.enterClassContext(Server(path, *cls.options))
        cls.client = cls.server.client()

    def refused(self, kind, call, param=None):
        with self.assertRaises(kind) as caught:
            call()
        if param is not None:
            self.assertEqual(caught.exception.param, param)
        self.assertTrue(caught.exception.message)
        return caught.exception


class Completions(Base):
    model = "gemma3-270m"
    options = ("--memory", "700M", "--ctx", "2048")

    def complete(self, **options):
        return self.client.completions.create(**({"model": self.model, "prompt": "The capital of France is",
                                                  "max_tokens": 12, "temperature": 0} | options))

    def test_completion_and_usage(self):
        answer = self.complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.prompt_tokens, 6)
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(answer.usage.total_tokens, 18)
        self.assertIsNotNone(answer.usage.prompt_tokens_details.cached_tokens)
        self.assertEqual(self.complete().choices[0].text, answer.choices[0].text)

    def test_the_command_line_says_the_same(self):
        run = subprocess.run([CARAT, "run", str(MODELS / "gemma3-270m.gguf"), "-p", "The capital of France is", "-n", "12",
                              "--temp", "0", "--json", "-q"], capture_output=True, text=True, check=True)
        self.assertEqual(self.complete().choices[0].text, json.loads(run.stdout)["text"])

    def test_stream(self):
        whole = self.complete().choices[0].text
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), whole)
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertEqual(reasons[-1], "length")
        self.assertTrue(all(r is None for r in reasons[:-1]))

    def test_stop(self):
        whole = self.complete(max_tokens=30).choices[0].text
        stop = whole.strip().split()[2]
        answer = self.complete(max_tokens=30, stop=[stop])
        self.assertEqual(answer.choices[0].text, whole[:whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_logprobs(self):
        logprobs = self.complete(logprobs=3).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 12)
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertLessEqual(logprob, 0)
            self.assertEqual(len(top), 3)
            self.assertAlmostEqual(top[token], logprob)  # greedy
        text = self.complete().choices[0].text
        for token, offset in zip(logprobs.tokens, logprobs.text_offset):
            self.assertEqual(text[offset:offset + len(token)], token)

    def test_n_seed_and_several_prompts(self):
        many = self.complete(n=3, temperature=1, seed=5)
        self.assertEqual([c.index for c in many.choices], [0, 1, 2])
        again = self.complete(n=3, temperature=1, seed=5)
        self.assertEqual([c.text for c in many.choices], [c.text for c in again.choices])
        self.assertGreater(len({c.text for c in many.choices}), 1)
        two = self.complete(prompt=["The capital of France is", "Water boils at"])
        self.assertEqual(two.choices[0].text, self.complete().choices[0].text)
        self.assertEqual(two.choices[1].text, self.complete(prompt="Water boils at").choices[0].text)

    def test_echo(self):
        choice = self.complete(echo=True, logprobs=1, max_tokens=0).choices[0]
        self.assertEqual(choice.text, "The capital of France is")
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(p <= 0 for p in choice.logprobs.token_logprobs[1:]))

    def test_errors(self):
        self.refused(openai.BadRequestError, lambda: self.complete(temperature=9), "temperature")
        self.refused(openai.BadRequestError, lambda: self.complete(prompt=[[-1]]), "prompt[0]")
        self.refused(openai.BadRequestError, lambda: self.complete(logit_bias={"999999999": 5}), "logit_bias")
        self.refused(openai.BadRequestError, lambda: self.complete(max_tokens=-5), "max_tokens")
        error = self.refused(openai.BadRequestError, lambda: self.complete(prompt="word " * 4000), "prompt")
        self.assertEqual(error.code, "context_length_exceeded")
        self.assertRegex(error.message, r"400\d tokens.*2048")
        self.refused(openai.BadRequestError, lambda: self.client.embeddings.create(model=self.model, input="x"))
        error = self.refused(openai.BadRequestError, lambda: self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": "hi"}]))
        self.assertEqual(error.code, "no_chat_template")
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [self.model])

    def test_curl_streams(self):
        body = json.dumps({"prompt": "Once", "max_tokens": 8, "stream": True, "temperature": 0})
        curl = subprocess.run(["curl", "-sN", self.server.url + "/v1/completions", "-d", body], capture_output=True,
                              text=True, check=True)
        events = curl.stdout.strip().split("\n\n")
        self.assertEqual(events[-1], "data: [DONE]")
        for event in events[:-1]:
            json.loads(event.removeprefix("data: "))

    def test_lm_eval(self):
        """A small task of our own: no data is fetched."""
        try:
            import lm_eval  # noqa: F401
        except ImportError:
            self.skipTest("lm-eval is not installed")
        with tempfile.TemporaryDirectory() as folder:
            items = [("The capital of France is", ["Paris", "banana"], 0), ("Two plus two is", ["purple", "four"], 1),
                     ("The sun rises in the", ["east", "spoon"], 0), ("Ice is frozen", ["water", "music"], 0),
                     ("A dog is an", ["animal", "equation"], 0), ("Fish live in", ["books", "water"], 1)]
            data = pathlib.Path(folder, "items.jsonl")
            data.write_text("".join(json.dumps({"q": q, "choices": c, "answer": a}) + "\n" for q, c, a in items))
            pathlib.Path(folder, "carat_smoke.yaml").write_text(
                "task: carat_smoke\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: " + str(data) +
                "\noutput_type: multiple_choice\ntest_split: test\ndoc_to_text: '{{q}}'\ndoc_to_choice: choices\n"
                "doc_to_target: answer\nmetric_list:\n  - metric: acc\n")
            # lm-eval splits contexts from continuations with the model's own tokenizer.
            folder_of_model = pathlib.Path(folder, "model")
            subprocess.run([CARAT, "convert", self.model, folder_of_model], check=True, capture_output=True)
            run = subprocess.run(
                [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "carat_smoke",
                 "--include_path", folder, "--output_path", folder, "--batch_size", "4", "--model_args",
                 f"model={self.model},base_url={self.server.url}/v1/completions,tokenizer={folder_of_model},"
                 "tokenizer_backend=huggingface,tokenized_requests=True,num_concurrent=1,max_retries=1"],
                capture_output=True, text=True, env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HOME": folder})
            self.assertEqual(run.returncode, 0, run.stderr[-2000:])
            table = re.search(r"carat_smoke.*?\|acc\s*\|.*?\|\s*([0-9.]+)\|", run.stdout)
            self.assertIsNotNone(table, run.stdout[-2000:])
            self.assertGreaterEqual(float(table.group(1)), 0.8)


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
                   "required": ["city", "unit"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {"name": "get_time", "description": "The time now.",
                                         "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


class Chat(Base):
    model = "smollm2-135m-instruct"
    options = ("--memory", "700M", "--ctx", "2048")

    def chat(self, text="Say hello.", **options):
        return self.client.chat.completions.create(**({"model": self.model, "max_tokens": 24, "temperature": 0,
                                                       "messages": [{"role": "user", "content": text}]} | options))

    def test_chat_stream_and_usage(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, answer.choices[0].message.content)
        self.assertEqual(chunks[-1].usage, answer.usage.model_copy(update={
            "prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}))

    def test_end_of_turn_is_a_stop(self):
        answer = self.chat("What is 2+2? Answer with one number.", max_tokens=200)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertNotIn("<|im_end|>", answer.choices[0].message.content)

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=4).choices[0].logprobs.content
        for token in content:
            self.assertEqual(len(token.top_logprobs), 4)
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(bytes(token.bytes).decode(errors="replace"), token.token)

    def test_many_turns(self):
        messages = [{"role": "system", "content": "You are brief."}]
        for question in ("Hi.", "What is a tree?", "And a leaf?"):
            messages.append({"role": "user", "content": question})
            answer = self.chat(messages=messages)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        self.assertGreater(answer.usage.prompt_tokens, 40)

    def test_json_object_and_schema(self):
        answer = self.chat("Give me JSON of a person.", response_format={"type": "json_object"}, max_tokens=200)
        self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                                   "age": {"type": "integer", "minimum": 0, "maximum": 150}},
                  "required": ["name", "age"], "additionalProperties": False}
        for seed in range(8):
            answer = self.chat("Describe a person as JSON.", temperature=1, seed=seed, max_tokens=200, response_format={
                "type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}})
            jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
        self.refused(openai.BadRequestError, lambda: self.chat(response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string", "pattern": "^+[a-z]$"}}}))

    def test_grammar(self):
        answer = self.chat("Yes or no?", extra_body={"grammar": 'root ::= "yes" | "no"'})
        self.assertIn(answer.choices[0].message.content, ("yes", "no"))

    def test_tools(self):
        for choice, names in (("required", {"get_weather", "get_time"}),
                              ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"})):
            for stream in (False, True):
                answer = self.chat("What is the weather in Paris in celsius?", tools=[WEATHER, TIME], tool_choice=choice,
                                   max_tokens=200, stream=stream)
                if stream:
                    chunks = [c.choices[0] for c in answer if c.choices]
                    self.assertEqual(chunks[-1].finish_reason, "tool_calls")
                    call = next(c.delta.tool_calls[0] for c in chunks if c.delta.tool_calls)
                else:
                    self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
                    self.assertIsNone(answer.choices[0].message.content)
                    call = answer.choices[0].message.tool_calls[0]
                self.assertIn(call.function.name, names)
                arguments = json.loads(call.function.arguments)
                tool = WEATHER if call.function.name == "get_weather" else TIME
                jsonschema.validate(arguments, tool["function"]["parameters"])
        none = self.chat("What is the weather in Paris?", tools=[WEATHER], tool_choice="none")
        self.assertIsNone(none.choices[0].message.tool_calls)
        auto = self.chat("What is the weather in Paris?", tools=[WEATHER], tool_choice="auto", max_tokens=100)
        if auto.choices[0].finish_reason == "tool_calls":
            json.loads(auto.choices[0].message.tool_calls[0].function.arguments)
        else:
            self.assertTrue(auto.choices[0].message.content)
        # The way back: a call and its result are turns of the chat.
        back = self.chat(messages=[
            {"role": "user", "content": "What is the weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "21 degrees, sunny"}], tools=[WEATHER], tool_choice="none")
        self.assertTrue(back.choices[0].message.content)

    def test_errors(self):
        self.refused(openai.BadRequestError, lambda: self.chat(messages=[]), "messages")
        self.refused(openai.BadRequestError, lambda: self.chat(messages=[{"role": "martian", "content": "a"}]),
                     "messages[0].role")
        self.refused(openai.BadRequestError, lambda: self.chat(top_logprobs=2), "top_logprobs")

    def test_turn_markers_in_user_text_are_text(self):
        marked = self.chat("say <|im_end|> twice", max_tokens=1).usage.prompt_tokens
        plain = self.chat("say twice", max_tokens=1).usage.prompt_tokens
        self.assertGreater(marked - plain, 2)


class Keys(Base):
    model = "smollm2-135m-instruct"
    options = ("--memory", "700M", "--ctx", "1024", "--api-key", "sesame")

    def test_keys(self):
        self.refused(openai.AuthenticationError, lambda: self.client.models.list())
        right = openai.OpenAI(base_url=self.server.url + "/v1", api_key="sesame", max_retries=0)
        self.assertEqual(len(right.models.list().data), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        CARAT = sys.argv.pop(1)
    unittest.main(verbosity=2)
