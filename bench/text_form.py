"""Save models as text, load them again, and compare what both write; and write files of models in processes of other hash seeds.

    python bench/text_form.py [PATH ...] [--nodes] [--light] [--every N] [--seeds] [--json]

Of every model (``PATH``: files, or folders of .onnx and .xml; ``--nodes``: the backend tests of the onnx package; ``--light``:
its light models) the text of the loaded text must be the same bytes, and so must the files of both models in ONNX and in IR, or
the refusal. A file that is saved, loaded and saved again must be the same bytes in every format. With ``--seeds`` each file is
written by processes with PYTHONHASHSEED 0, 1 and random, whose bytes must be equal. ``--every N`` takes each N-th model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import dovetail  # noqa: E402
from dovetail import DovetailError  # noqa: E402
from text_identity import SUFFIXES, differences_of, written  # noqa: E402

SEEDS = ("0", "1", "random")


def models(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield a name and a source of each model that loads."""
    for path in map(Path, arguments.paths):
        files = [path] if path.is_file() else sorted([*path.rglob("*.onnx"), *path.rglob("*.xml")])
        for file in files[:: arguments.every]:
            yield str(file), file
    if arguments.light:
        folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        for file in sorted(folder.rglob("*.onnx")):
            yield f"light {file.name}", file
    if arguments.nodes:
        from backend_data import KINDS, samples

        for kind in KINDS:
            for sample in samples(kind)[:: arguments.every]:
                yield f"{kind} {sample.name}", sample.read_model()


def digests(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the digests of the files of every model in every format, as this process writes them."""
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for label, source in models(arguments):
            try:
                model = dovetail.load(source)
            except DovetailError:
                continue
            found[label] = [
                hashlib.sha256(repr(written(model, Path(name) / "seed", suffix)).encode()).hexdigest() for suffix in SUFFIXES
            ]
    return found


def compare_seeds() -> int:
    """Write all files under each hash seed. Returns the number of models whose bytes differ."""
    options = [text for text in sys.argv[1:] if text not in ("--seeds", "--json")]
    runs = []
    for seed in SEEDS:
        command = [sys.executable, __file__, *options, "--digests"]
        done = subprocess.run(command, env={"PYTHONHASHSEED": seed, "PATH": ""}, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    different = [name for name in runs[0] if any(run.get(name) != runs[0][name] for run in runs)]
    for name in different[:20]:
        print(f"{name}: bytes depend on PYTHONHASHSEED")
    print(f"{len(runs[0])} models under PYTHONHASHSEED {', '.join(SEEDS)}: {len(different)} differ")
    return len(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    for option in ("--nodes", "--light", "--seeds", "--json", "--digests"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS if option == "--digests" else None)
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.digests:
        print(json.dumps(digests(arguments)))
        return 0
    if arguments.seeds:
        return int(compare_seeds() > 0)
    counts: Counter[str] = Counter()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for label, source in models(arguments):
            try:
                differences = differences_of(source, Path(name))
                outcome = "differs" if differences else "equal"
            except DovetailError as error:
                differences, outcome = [f"[{error.code}] {error.message[:100]}"], "does not load"
            counts[outcome] += 1
            rows.append({"model": label, "outcome": outcome, "differences": differences})
            if differences and not arguments.json:
                print(f"{label}: {'; '.join(differences)}", flush=True)
    print(json.dumps(rows) if arguments.json else ", ".join(f"{number} {text}" for text, number in counts.items()))
    return int(counts["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
