"""What bench/load.py makes of the outcomes: percentiles, goodput, the knee, tables."""

import math
from collections import Counter

from load_client import Outcome, Server, process_memory


def percentile(values: list[float], share: float) -> float | None:
    """The least value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def spread(values: list[float]) -> dict:
    return {"p50": percentile(values, 0.5), "p95": percentile(values, 0.95), "max": max(values, default=None)}


def meets(outcome: Outcome, slo: dict) -> bool:
    token = outcome.token_s
    return (outcome.kind == "ok" and outcome.first_token_s <= slo["first_s"]
            and (token is None or token <= slo["token_s"]))


def share_inside(outcome: Outcome, begin: float, end: float) -> float:
    """Of the answer's tokens, taken as even between the first and the last, those inside the window."""
    if not outcome.first:
        return 0
    if outcome.last <= outcome.first:
        return float(begin <= outcome.first < end)
    return max(0.0, min(outcome.last, end) - max(outcome.first, begin)) / (outcome.last - outcome.first)


def summarize(outcomes: list[Outcome], begin: float, end: float, slo: dict) -> dict:
    """Rates are of the window [begin, end): of a request that reaches over its edges, the part inside. Latencies and
    kinds are of requests that were due in it."""
    window = end - begin
    due = [o for o in outcomes if begin <= o.due < end]
    good = [o for o in due if o.kind == "ok"]
    within = [o for o in outcomes if meets(o, slo)]
    rate = lambda some, weight: sum(weight(o) * share_inside(o, begin, end) for o in some) / window
    output = lambda o: o.completion_tokens or o.pieces
    return {
        "window_s": round(window, 3), "requests": len(due), "kinds": dict(Counter(o.kind for o in due)),
        "finish": dict(Counter(o.finish for o in good)), "degraded": dict(Counter(o.degraded for o in good if o.degraded)),
        "output_tokens_per_s": rate(outcomes, output),
        "requests_per_s": rate(outcomes, lambda o: o.kind == "ok"),
        "goodput_requests_per_s": rate(within, lambda o: 1), "goodput_tokens_per_s": rate(within, output),
        "slo_met": sum(meets(o, slo) for o in due) / len(due) if due else None,
        "first_token_s": spread([o.first_token_s for o in good if o.first]),
        "token_s": spread([o.token_s for o in good if o.token_s is not None]),
        "end_to_end_s": spread([o.done - o.due for o in good]),
        "sent_late_s": spread([o.sent - o.due for o in due if o.sent]),
        "prompt_tokens": sum(o.prompt_tokens for o in good), "cached_tokens": sum(o.cached_tokens for o in good),
        "completion_tokens": sum(o.completion_tokens for o in good),
        "asked_output_tokens": sum(o.asked_output for o in good),
    }


def knee(levels: list[dict]) -> int | None:
    """The least concurrency whose tokens a second are within 5% of the most: more clients only wait longer."""
    most = max((level["output_tokens_per_s"] for level in levels), default=0)
    return next((level["clients"] for level in levels if most and level["output_tokens_per_s"] >= 0.95 * most), None)


def watched(watch, budget: int | None) -> dict:
    memory = process_memory(watch.pid) if watch.pid else {}
    peak = memory["VmHWM"] + memory["VmSwap"] if memory else None
    return {
        "health_s": spread(watch.health_s), "health_asked": len(watch.health_s),
        "health_failures": dict(Counter(watch.health_failures)), "peak_bytes": peak, "budget_bytes": budget,
        "within_budget": peak <= budget if peak and budget else None,
    }


# --- /metrics -------------------------------------------------------------------------------

COUNTED = {
    "prompt_tokens": ("carat_prompt_tokens_total", lambda o: o.prompt_tokens),
    "cached_tokens": ("carat_cached_prompt_tokens_total", lambda o: o.cached_tokens),
    "completion_tokens": ("carat_generated_tokens_total", lambda o: o.completion_tokens),
}


def total(metrics: dict[str, float], name: str) -> float | None:
    """The sum over all labels."""
    values = [value for key, value in metrics.items() if key == name or key.startswith(name + "{")]
    return sum(values) if values else None


def metrics_check(before: dict, after: dict, outcomes: list[Outcome]) -> list[dict]:
    """The server's counters beside the client's own counts. Clients that left do not know what they cost, so with any
    of them the server may have counted more."""
    left = any(o.kind not in ("ok", "refused") for o in outcomes)
    checks = []
    for what, (name, count) in COUNTED.items():
        end = total(after, name)
        if end is None:
            continue
        server = end - (total(before, name) or 0)
        client = sum(count(o) for o in outcomes)
        checks.append({"what": what, "server": server, "client": client,
                       "agrees": server >= client if left else server == client})
    return checks


def wait_idle(server: Server, seconds: float) -> dict[str, float]:
    """The metrics once nothing runs or waits any more, or after `seconds`."""
    import time
    end = time.monotonic() + seconds
    while True:
        metrics = server.metrics()
        busy = (total(metrics, "carat_requests_running") or 0) + (total(metrics, "carat_requests_waiting") or 0)
        if not busy or time.monotonic() > end:
            return metrics
        time.sleep(0.1)


# --- tables ---------------------------------------------------------------------------------


def shown(value, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


COLUMNS = ["load", "requests", "tokens/s", "goodput req/s", "SLO met", "first p50 s", "first p95 s", "token p50 ms",
           "token p95 ms", "not ok"]


def row(label: str, level: dict) -> list[str]:
    token = {name: None if v is None else 1000 * v for name, v in level["token_s"].items()}
    bad = {kind: count for kind, count in level["kinds"].items() if kind != "ok"}
    return [label, str(level["requests"]), shown(level["output_tokens_per_s"], 1),
            shown(level["goodput_requests_per_s"]), shown(level["slo_met"], 2), shown(level["first_token_s"]["p50"]),
            shown(level["first_token_s"]["p95"]), shown(token["p50"], 1), shown(token["p95"], 1),
            ", ".join(f"{count} {kind}" for kind, count in bad.items()) or "none"]


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines) + "\n"


def watch_text(report: dict) -> str:
    lines = []
    if health := report.get("watch", {}).get("health_s", {}).get("max"):
        watch = report["watch"]
        lines.append(f"/health during the load: p95 {1000 * watch['health_s']['p95']:.1f} ms, most {1000 * health:.1f} ms "
                     f"of {watch['health_asked']}; failures: {watch['health_failures'] or 'none'}.")
        if watch["peak_bytes"]:
            budget = f", budget {watch['budget_bytes'] / 1e6:.1f} MB" if watch["budget_bytes"] else ""
            lines.append(f"VmHWM + VmSwap {watch['peak_bytes'] / 1e6:.1f} MB{budget}.")
    for check in report.get("metrics", []):
        lines.append(f"/metrics {check['what']}: {check['server']:.0f}, counted by clients {check['client']}"
                     f"{'' if check['agrees'] else ' (DIFFERS)'}.")
    return "\n".join(lines) + "\n" if lines else ""
