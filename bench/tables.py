"""Run every benchmark and write what it measured into docs/measurements/, between the marks of its tables.

    python bench/tables.py [NAME ...] [--quick]

A table stands between ``<!-- NAME ISA -->`` and ``<!-- /NAME ISA -->``, one for each instruction set that it was measured with,
and a new one behind the others of its name. --quick takes few rounds, to see that all works.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batcher import table as batcher_rows
from server import table as serving_rows
from zoo_times import profile

from dovetail.ir.host.native_core import instruction_set
from dovetail.measure.benchmark import machine

BENCH = Path(__file__).resolve().parent
PAGES = BENCH.parent / "docs" / "measurements"
Rows = list[list[str]]


def measured(script: str, *arguments: str) -> Any:
    found = subprocess.run(
        [sys.executable, str(BENCH / script), "--json", *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout[found.stdout.index("{") :])


def networks(quick: bool) -> Rows:
    found = measured("networks.py", *(["--rounds", "3", "--models", "squeezenet"] if quick else []))
    rows = _against_peers(found["rows"], ["model", "batch", "threads"])
    return [*rows, ["geometric mean", *[""] * (len(rows[0]) - 2), f"{found['geometric_mean']:.2f}"]]


def transformers(quick: bool) -> Rows:
    return _against_peers(measured("transformer_times.py", *(["--rounds", "3"] if quick else []))["rows"], ["model", "threads"])


def models(quick: bool) -> Rows:
    found = measured("models.py", *(["--rounds", "3", "--models", "LSTM"] if quick else []))["rows"]
    rows = _against_peers(found, ["model", "threads"])
    rows[0] += ["largest difference", "the peers' own"]
    for line, row in zip(rows[1:], found, strict=True):
        line += [f"{size:.0e}" for size in (max(row["differences"].values()), row["peers_difference"])]
    return rows


def bf16(quick: bool) -> Rows:
    """Dovetail and OpenVINO in bf16, with the largest differences from dovetail's f32."""
    options = ["--precision", "bf16", *(["--rounds", "3"] if quick else [])]
    images = ["squeezenet"] if quick else ["densenet121", "inception_v2", "squeezenet", "resnet50"]
    others = ["LSTM"] if quick else ["BERT", "ViT", "detector", "U-Net", "GPT-2", "Llama", "LSTM"]
    rows = [
        *measured("networks.py", *options, "--batch", "1", "--models", *images)["rows"],
        *measured("models.py", *options, "--models", *others)["rows"],
    ]
    found = [["model", "threads", "dovetail ms", "openvino ms", "ratio", "difference of dovetail", "of openvino"]]
    ratios = []
    for row in rows:
        times, differences = ([row[key][engine] for engine in ("dovetail", "openvino")] for key in ("ms", "differences"))
        ratios.append(times[0] / times[1])
        cells = [*(f"{ms:.2f}" for ms in times), f"{ratios[-1]:.2f}", *(f"{size:.1e}" for size in differences)]
        found.append([row["model"], str(row["threads"]), *cells])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return [*found, ["geometric mean", "", "", "", f"{mean:.2f}", "", ""]]


def zoo(quick: bool) -> Rows:
    found = measured("zoo_times.py", *(["--rounds", "3", "--models", "silero"] if quick else []))
    engines = ("dovetail", "onnxruntime", "openvino")
    head = ["model", "threads", *(f"{engine} ms" for engine in engines), "ratio to the best peer", "profile"]
    rows = [
        [
            row["model"],
            str(row["threads"]),
            *(f"{row['ms'][each]:.3f}" if row["ms"].get(each) else "" for each in engines),
            f"{row['ratio']:.2f}" if row["ratio"] else "",
            profile(row) if row["ratio"] else "; ".join(row["notes"])[:80],
        ]
        for row in found["rows"]
    ]
    return [head, *rows, ["geometric mean", *[""] * 4, f"{found['geometric_mean']:.2f}", ""]]


def _against_peers(rows: list[dict[str, Any]], keys: list[str]) -> Rows:
    engines = list(rows[0]["ms"])
    head = [*keys, *(f"{engine} ms" for engine in engines), "ratio to the best peer"]
    return [
        head,
        *(
            [str(row[key]) for key in keys] + [f"{row['ms'][each]:.2f}" for each in engines] + [f"{row['ratio']:.2f}"]
            for row in rows
        ),
    ]


def ablation(quick: bool) -> Rows:
    return ablation_rows(measured("ablation.py", *(["--rounds", "3", "--models", "squeezenet"] if quick else []))["rows"])


def ablation_rows(rows: list[dict[str, Any]]) -> Rows:
    head = [
        "model",
        "auto ms",
        "all ms",
        "none ms",
        "moved MB",
        "copied % (auto)",
        "copied % (all)",
        "arena MB",
        "arena / bound",
        "arena MB (none)",
        "peak MB",
    ]
    found = [[*head, *(f"{engine} peak MB" for engine in rows[0]["peak_bytes"] if engine != "dovetail")]]
    for row in rows:
        auto, every, none = (row["plans"][elide] for elide in ("auto", "all", "none"))
        found.append(
            [
                row["model"],
                *(f"{row['ms'][each]:.2f}" for each in ("auto", "all", "none")),
                f"{every['moved_bytes'] / 1e6:.1f}",
                *(f"{100 * plan['copied_bytes'] / max(plan['moved_bytes'], 1):.1f}" for plan in (auto, every)),
                f"{every['arena_bytes'] / 1e6:.1f}",
                f"{every['arena_bytes'] / max(every['lower_bound'], 1):.2f}",
                *(f"{size / 1e6:.1f}" for size in (none["arena_bytes"], *row["peak_bytes"].values())),
            ]
        )
    return found


def sizes(quick: bool) -> Rows:
    found = measured("sizes.py", *(["--calls", "8", "--only", "products"] if quick else ["--threads", "1", "2"]))
    engines = ("dovetail", "onnxruntime", "openvino")
    head = ["model", "threads"]
    for kind in ("new", "seen"):
        head += [*(f"{engine} ms, {kind}" for engine in engines), "ratio"]
    rows = []
    for row in found["rows"]:
        cells = [row["model"], str(row["threads"])]
        for kind in ("new", "seen"):
            ratio = row[f"{kind} ratio"]
            times = (row[kind].get(engine) for engine in engines)
            cells += [*("" if ms is None else f"{ms:.3f}" for ms in times), "" if ratio is None else f"{ratio:.2f}"]
        rows.append([*cells, str(row["plans"])])
    return [[*head, "plans"], *rows]


def arrays(quick: bool) -> Rows:
    found = measured("arrays.py", *(["--seconds", "0.05", "--only", "f16"] if quick else []))
    head = ["cell", "microseconds", "the best peer", "times as fast", "than numpy", "GB/s", "of limit", "of a copy"]
    rows = [
        [
            row["cell"],
            f"{row['us']['dovetail']:.1f}",
            row["best"],
            f"{row['ratio']:.2f}",
            f"{row['numpy']:.2f}",
            f"{row['GB/s']:.1f}",
            *("" if math.isnan(row[word]) else f"{row[word]:.0%}" for word in ("of limit", "of a copy")),
        ]
        for row in found["rows"]
    ]
    summary = found["summary"]
    means = [f"{summary[f'geometric mean, {name}']:.2f}" for name in ("best peer", "numpy")]
    return [head, *rows, ["geometric mean", "", "", *means, "", "", ""]]


def serving(quick: bool) -> Rows:
    found = measured("server.py", *(["--rounds", "1", "--seconds", "0.1", "--models", "bag"] if quick else []))["rows"]
    return serving_rows(found)


def batcher(quick: bool) -> Rows:
    few = ["--rounds", "1", "--seconds", "0.1", "--lengths", "64"] if quick else ["--rounds", "9", "--seconds", "0.4"]
    lengths = [] if quick else ["--lengths", "64", "16 32 64 128"]
    return batcher_rows(measured("batcher.py", *few, *lengths, "--models", "wide", "encoder, 2")["rows"])


TABLES: dict[str, Callable[[bool], Rows]] = {
    "networks": networks,
    "transformers": transformers,
    "models": models,
    "bf16": bf16,
    "zoo": zoo,
    "ablation": ablation,
    "sizes": sizes,
    "arrays": arrays,
    "serving": serving,
    "batcher": batcher,
}


def markdown(rows: Rows) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(name: str, rows: Rows) -> None:
    pages = [path for path in PAGES.glob("*.md") if f"<!-- /{name} " in path.read_text(encoding="utf-8")]
    if len(pages) != 1:
        raise SystemExit(f"{len(pages)} pages of {PAGES} have a table {name}")
    page = pages[0]
    text = page.read_text(encoding="utf-8")
    mark = f"{name} {instruction_set()}"
    table = f"<!-- {mark} -->\n{machine()}:\n\n{markdown(rows)}\n<!-- /{mark} -->"
    own = list(re.finditer(rf"<!-- {mark} -->.*?<!-- /{mark} -->", text, flags=re.DOTALL))
    others = list(re.finditer(rf"<!-- /{name} \w+ -->", text))
    if len(own) > 1:
        raise SystemExit(f"{page.name} has {len(own)} places for the table {mark}")
    if own:
        start, end = own[0].span()
    else:
        start = end = others[-1].end()
        table = f"\n\n{table}"
    page.write_text(text[:start] + table + text[end:], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*TABLES, []], help="which tables; all when left out")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for name in options.names or TABLES:
        rows = TABLES[name](options.quick)
        print(f"{name}\n{markdown(rows)}\n", flush=True)
        if not options.quick:
            write(name, rows)


if __name__ == "__main__":
    main()
