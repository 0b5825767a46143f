"""Mappers as Ray Data, Dask and Spark call them, in processes of theirs, against onnxruntime on the same rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from row_models import classifier, expected, rows_of

COUNT = 200

# Engines and their packages warn about each other's versions.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def mapper(tmp_path: Path) -> dovetail.Mapper:
    return dovetail.Mapper(classifier(tmp_path), batch=16, keep=["id"], cache_dir=tmp_path / "plans")


def check(mapper: dovetail.Mapper, found: Any, x: Any) -> None:
    """Compare rows of a pandas frame, in any order, with onnxruntime's."""
    theirs = expected(mapper.path or "", {"x": x})
    ids = found["id"].to_numpy()
    assert sorted(ids) == list(range(COUNT))
    np.testing.assert_array_equal(found["label"].to_numpy(), theirs["label"][ids])
    np.testing.assert_allclose(np.stack(list(found["scores"])), theirs["scores"][ids], rtol=1e-5, atol=1e-6)


# Dask, without a cluster: the partitions run in threads of this process.


def test_dask_maps_the_partitions_of_a_frame(mapper: dovetail.Mapper) -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    x = rows_of(COUNT)
    # By default Dask writes arrays in cells as text.
    with pytest.importorskip("dask").config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(pd.DataFrame({"id": np.arange(COUNT), "x": list(x)}), npartitions=7)
        found = frame.map_partitions(mapper, meta=mapper(pd.DataFrame({"id": np.arange(0), "x": []})))
        check(mapper, found.compute(scheduler="threads"), x)


def test_dask_infers_the_columns_of_scalars_by_itself(tmp_path: Path) -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    with dovetail.Builder("sum") as b:
        b.output("y", b.input("a", "f32", ("n",)) + b.input("c", "f32", ("n",)))
    frame = pd.DataFrame({"a": np.arange(9, dtype="f4"), "c": np.ones(9, "f4")})
    found = dd.from_pandas(frame, npartitions=2).map_partitions(dovetail.Mapper(b.model))
    assert found.dtypes.to_dict() == {"y": np.dtype("f4")}
    assert found.compute(scheduler="threads")["y"].tolist() == [value + 1 for value in range(9)]


def test_dask_maps_the_blocks_of_an_array(tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    path = classifier(tmp_path)
    scores = dovetail.Mapper(dovetail.extract(dovetail.load(path), outputs="scores"), batch=16)
    x = rows_of(COUNT)
    rows = da.from_array(x, chunks=(33, 12))
    blocks = rows.map_blocks(scores, dtype="f4", chunks=(rows.chunks[0], (5,)))
    assert blocks.dtype == "f4" and blocks.shape == (COUNT, 5)
    np.testing.assert_allclose(blocks.compute(scheduler="threads"), expected(path, {"x": x})["scores"], rtol=1e-5, atol=1e-6)


def test_a_process_of_dask_runs_one_thread_for_each_task(mapper: dovetail.Mapper) -> None:
    distributed = pytest.importorskip("distributed")
    from dovetail.data.rows.worker_threads import worker_thread_count

    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        assert client.submit(worker_thread_count, None).result(timeout=60) == 1
        x = rows_of(COUNT)
        parts = [{"id": np.arange(i, i + 50), "x": x[i : i + 50]} for i in range(0, COUNT, 50)]
        found = client.gather(client.map(mapper, parts))
    np.testing.assert_array_equal(
        np.concatenate([part["label"] for part in found]), expected(mapper.path or "", {"x": x})["label"]
    )


# Ray: one local cluster for the module.


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    module = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_DEDUP_LOGS", "0")
        patch.delenv("DOVETAIL_THREADS", raising=False)
        module.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        yield module
        module.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_ray_data_maps_batches(ray: Any, mapper: dovetail.Mapper, batch_format: str) -> None:
    import ray.data as data

    x = rows_of(COUNT)
    rows = data.from_items([{"id": row, "x": x[row]} for row in range(COUNT)])
    found = rows.map_batches(mapper, batch_size=48, batch_format=batch_format).to_pandas()
    check(mapper, found, x)


@pytest.mark.slow
def test_ray_data_maps_batches_in_actors(ray: Any, mapper: dovetail.Mapper) -> None:
    import ray.data as data

    x = rows_of(COUNT)
    rows = data.from_items([{"id": row, "x": x[row]} for row in range(COUNT)])
    options = {"batch": 16, "keep": ["id"], "cache_dir": mapper.cache_dir}
    pool = data.ActorPoolStrategy(size=1)
    found = rows.map_batches(
        dovetail.Mapper, fn_constructor_args=(mapper.path,), fn_constructor_kwargs=options, compute=pool, batch_size=48
    )
    check(mapper, found.to_pandas(), x)


@pytest.mark.slow
def test_a_task_of_ray_runs_as_many_threads_as_it_has_cores(ray: Any) -> None:
    from dovetail.data.rows.worker_threads import worker_thread_count

    count = ray.remote(worker_thread_count)
    assert ray.get([count.options(num_cpus=cores).remote(None) for cores in (1, 2)]) == [1, 2]


# Spark


@pytest.mark.slow
def test_spark_maps_record_batches(mapper: dovetail.Mapper, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark runs on Java, which is not installed")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    x = rows_of(COUNT)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        rows = spark.createDataFrame([(row, x[row].tolist()) for row in range(COUNT)], "id long, x array<float>")
        found = rows.repartition(3).mapInArrow(mapper, "id long, scores array<float>, label long").toPandas()
    finally:
        spark.stop()
    check(mapper, found, x)
