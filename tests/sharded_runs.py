"""Models over a mesh of 8 host devices beside one device and the native engine; prints JSON. A process of its own, for XLA_FLAGS.

python tests/sharded_runs.py mlp | bert | llama | detector [--full] [MESH ...]    # data=2,model=4

``--full``: the size of bench/models.py, batch 8 of BERT and Llama; prints differences and collectives as text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import dovetail


def mlp() -> tuple[Any, dict[str, Any]]:
    """Return a residual block.

    A table, a product by columns, one by rows, a normalisation, a product whose result is gathered.
    """
    generator = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return generator.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)

    with dovetail.Builder() as b:
        ids = b.input("ids", "i64", ("batch", "length"))
        x = b.Gather(b.constant(weights(48, 64), name="table"), ids)
        inside = b.Relu(b.Add(b.MatMul(x, b.constant(weights(64, 128), name="up")), b.constant(weights(128), name="bias")))
        x = b.Add(x, b.MatMul(inside, b.constant(weights(128, 64), name="down")))
        x = b.LayerNormalization(x, b.constant(weights(64)), b.constant(weights(64)), axis=-1)
        mixed = b.MatMul(x, b.constant(weights(64, 64), name="mixing"))
        b.output("y", b.Softmax(b.Add(mixed, x), axis=-1))
        b.output("odd", b.MatMul(x, b.constant(weights(64, 31), name="odd_columns")))
    return b.model, {"ids": generator.integers(0, 48, (8, 5))}


def bert() -> tuple[Any, dict[str, Any]]:
    import language_models

    proto, feed = language_models.bert(layers=2, width=128, heads=8, inner=512, vocabulary=1000, length=16)
    return dovetail.load(proto), repeat(feed)


def llama() -> tuple[Any, dict[str, Any]]:
    import language_models

    proto, feed = language_models.llama(layers=2, width=128, heads=16, groups=8, inner=256, vocabulary=1024, past=15)
    return dovetail.load(proto), repeat(feed)


def detector() -> tuple[Any, dict[str, Any]]:
    import vision_models

    proto, feed = vision_models.detector(size=64)
    return dovetail.load(proto), feed


def repeat(feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of 8 samples that differ, where the inputs allow it."""
    generator = np.random.default_rng(1)
    rows = {}
    for name, array in feed.items():
        wide = np.concatenate([array] * 8)
        if name == "input_ids":
            wide = generator.permuted(np.arange(wide.size).reshape(wide.shape) % 900, axis=1)
        rows[name] = wide + generator.standard_normal(wide.shape, np.float32) if wide.dtype == np.float32 else wide
    return rows


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return max(float(np.abs(one[name] - other[name]).max() / np.abs(other[name]).max()) for name in other.keys())


def full_size(name: str) -> tuple[Any, dict[str, Any]]:
    import language_models
    import vision_models

    proto, feed = {"bert": language_models.bert, "llama": language_models.llama, "detector": vision_models.detector}[name]()
    return dovetail.load(proto), feed if name == "detector" else repeat(feed)


def main() -> None:
    is_full = "--full" in sys.argv
    meshes = [text for text in sys.argv[2:] if text != "--full"]
    small = {"mlp": mlp, "bert": bert, "llama": llama, "detector": detector}
    model, feed = full_size(sys.argv[1]) if is_full else small[sys.argv[1]]()
    native = dovetail.run(model, feed)
    single = dovetail.compile(model, "jax")(feed)
    rows = []
    for text in meshes:
        mesh = {name: int(size) for name, _, size in (pair.partition("=") for pair in text.split(","))}
        program: Any = dovetail.compile(model, "jax", device=dovetail.DeviceOptions(mesh=mesh))
        found = program(feed)
        collectives = program.collectives(feed)
        rows.append(
            {
                "mesh": mesh,
                "repr": repr(program),
                "plan": {row.name: list(row.spec) for row in program.shardings},
                "text": repr(program.shardings),
                "single": difference(found, single),
                "native": difference(found, native),
                "collectives": collectives.totals,
                "nodes": sorted({item.node for item in collectives}),
            }
        )
    if is_full:
        for row in rows:
            print(row["mesh"], f"single {row['single']:.2g}, native {row['native']:.2g}", row["collectives"], flush=True)
        return
    if sys.argv[1] == "mlp":
        rows.append(refusals(model, feed))
    print(json.dumps(rows))


def refusals(model: Any, feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the codes of wrong requests, and a request that holds."""
    codes = []
    for mesh, shardings in (
        ({"data": 16}, None),
        ({"data": 0}, None),
        ({"model": 8}, {"nothing*": ("model",)}),
        ({"model": 8}, {"table": ("tensor",)}),
        ({"model": 8}, {"odd_columns": (None, "model")}),
        ({"model": 8}, {"bias": (None, "model")}),
    ):
        try:
            dovetail.compile(model, "jax", device=dovetail.DeviceOptions(mesh=mesh, shardings=shardings))
            codes.append("")
        except dovetail.DovetailError as error:
            codes.append(error.code)
    try:
        dovetail.compile(model, "jax", device=dovetail.DeviceOptions(mesh={"data": 8}))({"ids": np.zeros((3, 5), np.int64)})
    except dovetail.DovetailError as error:
        codes.append(error.code)
    program: Any = dovetail.compile(
        model,
        "jax",
        device=dovetail.DeviceOptions(mesh={"model": 8}, shardings={"up": (), "down": None, "y": (None, None, "model")}),
    )
    same = difference(program(feed), dovetail.run(model, feed))
    return {"codes": codes, "plan": {row.name: list(row.spec) for row in program.shardings}, "native": same}


if __name__ == "__main__":
    main()
