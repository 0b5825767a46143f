"""Merge encoders with the decoders of a corpus, and models that were split; compare with running both models in sequence.

    python bench/merge.py CORPUS_FOLDER [--models TEXT[,TEXT...]] [--limit N] [--splits N] [--seed N]

Decoders are the models with an input ``encoder_hidden_states``; encoders are all models with one output that can be that input,
in either format, so that an ONNX encoder also meets a decoder in IR. Both models run in the runtimes of their formats, one after
the other; the merged model, written as ONNX and as IR, runs in that runtime and in dovetail. ``--splits`` models are split at a
random value by ``extract`` and merged again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from extract import RUNTIMES, TOLERANCE, compare, feed, run_in_own_runtime

import dovetail
from dovetail.errors import DovetailError, RuleError
from dovetail.ir.graph import Model
from dovetail.ir.types import Tensor
from dovetail.runtime.peers import Names

Arrays = dict[str, Any]
PORT = "encoder_hidden_states"


def stored_inputs(path: Path, model: Model) -> Arrays:
    with np.load(path.parent / f"{path.name.removesuffix(path.suffix)}.in.npz") as stored:
        return feed(model, dict(stored))


def names_of(model: Model) -> Names:
    return Names([value.name for value in model.inputs], [value.name for value in model.outputs])


def files_of(folder: Path, texts: list[str]) -> list[Path]:
    """Return the files whose runtime has a stored reference and that have no states."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in RUNTIMES
        and any(path.with_name(f"{path.name.removesuffix(path.suffix)}.{kind}.npz").exists() for kind in ("ref", "ovref"))
        and (not texts or any(text in path.name for text in texts))
    ]


def is_encoder(model: Model) -> bool:
    """Return whether a model has a single output of [batch, sequence, 64] and no states."""
    if len(model.outputs) != 1 or model.states:
        return False
    type = model.outputs[0].type
    if not isinstance(type, Tensor) or type.dtype != "f32" or type.shape is None or len(type.shape) != 3:
        return False
    return not isinstance(type.shape[2], int) or type.shape[2] == 64


def check_merge(merged: Model, inputs: Arrays, wanted: Arrays) -> list[str]:
    """Return the fault of a merged model, as ONNX and as IR, in their runtimes and in both engines."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for suffix, runtime in RUNTIMES.items():
            path = Path(folder) / f"merged{suffix}"
            try:
                dovetail.save(merged, path)
                compare(run_in_own_runtime(path, names_of(merged), inputs), wanted, TOLERANCE)
                for engine in ("interpreter", "native"):
                    compare(dict(dovetail.compile(path, engine)(inputs)), wanted, TOLERANCE)
            except (Exception, AssertionError) as error:
                faults.append(f"{runtime}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return faults


def join(first: Path, second: Path) -> list[str] | None:
    """Merge two files and compare; None where their types clash."""
    encoder, decoder = dovetail.load(first), dovetail.load(second)
    port = next(value.name for value in decoder.inputs if PORT in (value.name, *value.names))
    try:
        merged = dovetail.merge(encoder, decoder, {encoder.outputs[0].name: port}, prefix_second="decoder/")
    except DovetailError as error:
        if not isinstance(error, RuleError):
            raise
        return None
    # The encoder's batch decides: the stored inputs of the decoder are cut or repeated to it.
    inputs = stored_inputs(first, encoder)
    hidden = run_in_own_runtime(first, names_of(encoder), inputs)[encoder.outputs[0].name]
    own = stored_inputs(second, decoder)
    rest = {name: np.resize(array, (len(hidden), *array.shape[1:])) for name, array in own.items() if name != port}
    wanted = run_in_own_runtime(second, names_of(decoder), {**rest, port: hidden})
    return check_merge(
        merged,
        {**inputs, **{f"decoder/{name}": array for name, array in rest.items()}},
        {f"decoder/{name}": array for name, array in wanted.items()},
    )


def split(path: Path, choose: random.Random) -> list[str]:
    """Split a model at a random value, merge the parts with shared inputs, and compare with the whole."""
    model = dovetail.load(path)
    values = [y for node in model.graph.nodes for y in node.outputs if y.constant is None and isinstance(y.type, Tensor)]
    while True:
        middle = choose.choice(values).name
        try:
            second = dovetail.extract(model, middle)
            first = dovetail.extract(model, None, middle)
        except DovetailError as error:
            if error.code != "extract.path":
                raise
            continue
        break
    shared = {value.name for value in first.inputs} & {value.name for value in second.inputs}
    merged = dovetail.merge(first, second, [(middle, middle), *((name, name) for name in sorted(shared))])
    inputs = stored_inputs(path, model)
    wanted = run_in_own_runtime(path, names_of(model), inputs)
    return check_merge(merged, {value.name: inputs[value.name] for value in merged.inputs}, wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the corpus")
    parser.add_argument("--models", default="", help="only files whose name holds one of these texts")
    parser.add_argument("--limit", type=int, help="the most encoders per decoder, chosen at random")
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    files = files_of(options.folder, [text for text in options.models.split(",") if text])
    loaded = {path: dovetail.load(path) for path in files}
    decoders = [path for path in files if any(PORT in (value.name, *value.names) for value in loaded[path].inputs)]
    encoders = [path for path in files if path not in decoders and is_encoder(loaded[path])]
    whole = [path for path in files if not loaded[path].states and "lowp" not in path.name]
    counts = {"equal": 0, "wrong": 0, "of other types": 0}
    for decoder in decoders:
        for encoder in encoders if options.limit is None else sorted(choose.sample(encoders, options.limit)):
            faults = join(encoder, decoder)
            counts["of other types" if faults is None else "wrong" if faults else "equal"] += 1
            if faults:
                print(f"{encoder.name} + {decoder.name}", *faults, sep="\n    ", flush=True)
    print(
        "encoders with decoders: " + ", ".join(f"{count} {name}" for name, count in counts.items()),
        flush=True,
    )
    wrong = 0
    for path in (choose.choice(whole) for _ in range(options.splits)):
        try:
            faults = split(path, choose)
        except DovetailError as error:
            faults = [str(error)]
        if faults:
            wrong += 1
            print(path.name, *faults, sep="\n    ", flush=True)
    print(f"models split and merged again: {options.splits - wrong} of {options.splits} equal the whole", flush=True)
    sys.exit(bool(counts["wrong"] or wrong))


if __name__ == "__main__":
    main()
