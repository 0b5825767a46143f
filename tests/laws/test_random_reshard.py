"""Random graphs of moves over tensors in files give what numpy's own moves give, in buffers of a few elements."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import assume, given, strategies as st
from safetensors.numpy import load_file, save_file

import dovetail
from dovetail.data.tensors import copy_worker, reshard
from dovetail.data.tensors.copy_tasks import Budget
from strategies import Moved, movements


@given(movements(), st.sampled_from((16, 24, 40, 100, 1000, 1 << 16)), st.integers(1, 3))
def test_a_graph_of_moves_over_files_gives_the_results_of_numpy(moved: Moved, size: int, threads: int) -> None:
    assume(all(type(node.op).__name__ != "Gather" for node in moved.model.graph.nodes))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in").mkdir()
        save_file({name: np.ascontiguousarray(x) for name, x in moved.inputs.items()}, f"{folder}/in/x.safetensors")
        with (
            mock.patch.object(reshard, "_budget", lambda memory, threads: Budget(size, size)),
            # Elements that no task writes differ from zero.
            mock.patch.object(copy_worker, "allocate", lambda nbytes: np.full(nbytes, 0xA5, np.uint8)),
        ):
            report = dovetail.reshard(moved.model, f"{folder}/in", f"{folder}/out", threads=threads)
        loaded = load_file(f"{folder}/out/model.safetensors")
    assert report.nbytes == sum(x.nbytes for x in moved.outputs.values())
    assert loaded.keys() == moved.outputs.keys()
    for name, array in moved.outputs.items():
        assert loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
        assert loaded[name].tobytes() == np.ascontiguousarray(array).tobytes(), name
