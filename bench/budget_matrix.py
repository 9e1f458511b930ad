#!/usr/bin/env python3
"""Budgets x contexts x KV types on a real model: every run stays inside its budget or refuses, and what a refusal
suggests is true. The context is filled: the prompt is a text longer than it. Exit 1 when a run exceeded its budget or
a suggestion did not run.

bench/budget_matrix.py TEXT [--carat build/carat] [--model gemma3-270m] [--budgets 200M,300M] [--contexts 512,8192]
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


class Run:
    """One process: its exit status, peak resident bytes as the kernel says, JSON answer and error line."""

    def __init__(self, arguments):
        self.arguments = arguments
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out = child.stdout.read()
        self.error = child.stderr.read().strip()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.peak = usage.ru_maxrss * 1024
        self.answer = json.loads(out) if self.status == 0 else None


def command(options, budget, context, kv):
    """q8, q4 and auto are the form of global layers; local ones then have q8."""
    return [options.carat, "run", options.model, "-f", options.text, "--overflow", "truncate-left", "-n", "4",
            "--ctx", str(context), "--memory", budget, "--kv-local", "bf16" if kv == "bf16" else "q8",
            "--kv-global", kv, "--json", "-q"]


def try_suggestions(base, budget, error):
    """Runs each suggestion of a refusal instead of the options it replaces; the number tried and what failed."""
    suggestions = re.findall(r"((?:--[a-z-]+ [a-z0-9]+ ?)+)\((\d+) bytes\)", error.partition("would fit:")[2])
    failed = []
    for text, planned in suggestions:
        arguments = list(base)
        words = text.split()
        for option, value in zip(words[::2], words[1::2]):
            if option in arguments:
                arguments[arguments.index(option) + 1] = value
            elif option != "--parallel" or value != "1":  # `run` has one sequence
                arguments += [option, value]
        run = Run(arguments)
        if run.status != 0 or run.peak > budget or int(planned) > budget:
            failed.append(f"{text.strip()}: exit {run.status}, peak {run.peak}: {run.error}")
    return len(suggestions), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--carat", default="build/carat")
    parser.add_argument("--model", default="gemma3-270m")
    parser.add_argument("--budgets", default="200M,260M,300M,420M,1G")
    parser.add_argument("--contexts", default="512,8192,32768")
    parser.add_argument("--kv", default="bf16,q8,q4,auto")
    options = parser.parse_args()
    wrong = []
    print("| budget | ctx | KV | peak | of budget | planned | swap | tokens | suggestions tried |\n" + "|---" * 9 + "|")
    for budget_text in options.budgets.split(","):
        budget = bytes_of(budget_text)
        for context in options.contexts.split(","):
            for kv in options.kv.split(","):
                arguments = command(options, budget_text, context, kv)
                run = Run(arguments)
                row = f"| {budget_text} | {context} | {kv} |"
                if run.status == 0:
                    memory = run.answer["memory"]
                    swapped = memory["swap"]
                    tokens = run.answer["prompt_tokens"] + run.answer["completion_tokens"]
                    print(f"{row} {run.peak / 1e6:.1f} MB | {100 * run.peak / budget:.1f}% | "
                          f"{memory['planned'] / 1e6:.1f} MB | {swapped} | {tokens} | |", flush=True)
                    if run.peak + swapped > budget:
                        wrong.append(f"{row} exceeded: {run.peak} + {swapped}")
                elif run.status == 3:
                    tried, failed = try_suggestions(arguments, budget, run.error)
                    print(f"{row} refused | | | | | {tried - len(failed)} of {tried} |", flush=True)
                    wrong += [f"{row} {one}" for one in failed]
                else:
                    wrong.append(f"{row} exit {run.status}: {run.error}")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\n{len(wrong)} wrong (a child's peak includes this script's {own / 1e6:.0f} MB before it starts carat)")
    for one in wrong:
        print(one)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
