"""A real architecture with random weights: ONNX to OpenVINO IR and back, all three run, and compared."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import light_models
import onnx

import dovetail
from dovetail.cli.output import table
from dovetail.compare.verification.conversion import compare, runner_for
from dovetail.runtime.peers import Runner

Result = TypeVar("Result")


def main(name: str = "densenet121") -> int:
    """Convert the light model ``name`` there and back, run all three files, and print how far apart they are. 0: they agree."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{name}.onnx")
        proto = light_models.with_random_weights(name)
        onnx.save(proto, source)
        image = light_models.image(proto)

        ir, back = source.with_suffix(".xml"), Path(folder, f"{name}_back.onnx")
        print(f"{name}: {source.stat().st_size / 1e6:.1f} MB of ONNX, weights random (seed 0)\n")
        model, seconds = timed(lambda: dovetail.load(source))
        print(f"load and infer  {len(model.graph)} nodes  {seconds:.2f} s")
        _, seconds = timed(lambda: dovetail.save(model, ir))
        print(f"ONNX -> IR      {ir.name} + {ir.stem}.bin  {seconds:.2f} s")
        _, seconds = timed(lambda: dovetail.save(dovetail.load(ir), back))
        print(f"IR -> ONNX      {back.name}  {seconds:.2f} s\n")

        runners = [Runner("dovetail", dovetail.compile(model)), *(runner_for(path) for path in (source, ir, back))]
        results, rows = [], []
        for runner, path in zip(runners, (source, source, ir, back), strict=True):
            runner.run(image)
            outputs, seconds = timed(lambda run=runner.run: run(image))
            results.append(outputs)
            rows.append([path.name, runner.name, f"{seconds * 1000:.0f} ms"])
        found = [compare(results[0], other)[0] for other in results]
        verdicts = ["agrees" if item.agrees else "DIFFERS" for item in found]
        figures = [[f"{item.absolute:.3g}", f"{item.relative:.3g}"] for item in found]
        shown = [[*row, *figure, verdict] for row, figure, verdict in zip(rows, figures, verdicts, strict=True)]
        table(("file", "run by", "time", "max abs", "max rel", ""), shown)
        agree = all(item.agrees for item in found)
        print(f"\n{'All of them agree' if agree else 'THEY DIFFER'} (within 1e-4 of the largest magnitude).")
        return 0 if agree else 1


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of ``work`` and the seconds that it took."""
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
