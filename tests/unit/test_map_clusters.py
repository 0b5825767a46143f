"""``map_rows`` on clusters of Ray and Dask, and in network namespaces as hosts: the rows of a local run, whatever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from row_models import map_rows

pytestmark = pytest.mark.slow

ROWS = 6000
PART_ROWS = 64
PARTS = -(-ROWS // PART_ROWS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters")
    generator = np.random.default_rng(0)
    with dovetail.Builder("scores") as b:
        x = b.input("x", "f32", ("rows", 64))
        hidden = b.Relu(b.MatMul(x, b.constant(generator.standard_normal((64, 512)).astype("f4"))))
        b.output("y", b.Softmax(b.MatMul(hidden, b.constant(generator.standard_normal((512, 8)).astype("f4"))), axis=1))
    dovetail.save(b.model, folder / "model.onnx")
    np.save(folder / "rows.npy", generator.standard_normal((ROWS, 64)).astype("f4"))
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, bytes]:
    """Return the files of a local run."""
    map_rows(folder / "model.onnx", folder / "rows.npy", folder / "local", workers=1, part_rows=PART_ROWS)
    return files_of(folder / "local")


def files_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.npy")}


def descendants(words: bytes) -> list[int]:
    """Return the processes below this one whose command line contains ``words``."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = path.read_text()
            parents[int(path.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(process for process in found - {os.getpid()} if words in command_of(process))


def command_of(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def kill_one_worker(workers: Callable[[], list[int]]) -> Callable[[Any], None]:
    """Return a callback of progress that kills the newest worker once, when a third of the parts are there."""
    killed: list[int] = []

    def look(progress: Any) -> None:
        if not killed and progress.parts >= PARTS // 3:
            killed.append(workers()[-1])
            os.kill(killed[0], signal.SIGKILL)

    return look


@pytest.mark.parametrize(("engine", "words"), [("ray", b"ray::_Worker"), ("dask", b"spawn_main")])
def test_a_local_cluster_gives_the_files_of_a_local_run(
    folder: Path, expected: dict[str, bytes], engine: str, words: bytes
) -> None:
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    out = folder / engine
    look = kill_one_worker(lambda: descendants(words))
    report = map_rows(
        folder / "model.onnx", folder / "rows.npy", out, engine=engine, workers=2, part_rows=PART_ROWS, on_progress=look
    )
    assert (report.rows, report.parts, report.lost_workers) == (ROWS, PARTS, 1)
    assert files_of(out) == expected


@pytest.mark.parametrize(("engine", "address"), [("dask", "tcp://127.0.0.1:9"), ("ray", "127.0.0.1:9")])
def test_an_address_without_a_cluster_is_an_error(
    folder: Path, tmp_path: Path, engine: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    monkeypatch.setattr("dovetail.data.rows.dask_pool.START_SECONDS", 4)
    with pytest.raises(dovetail.EngineError, match=r"\[job.address\].*127.0.0.1:9"):
        map_rows(folder / "model.onnx", folder / "rows.npy", tmp_path / "out", engine=engine, address=address)


# Network namespaces as hosts


class Hosts:
    """Three network namespaces on one bridge, at 10.77.0.1 to 10.77.0.3, which share the files of this host."""

    def __init__(self, log: Path) -> None:
        self.log = log
        """What processes print on stderr."""
        self.names = [f"dovetail{os.getpid()}h{number}" for number in (1, 2, 3)]
        self.bridge = f"dt{os.getpid() % 10**8}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Hosts:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("link", "set", self.bridge, "up")
        for number, name in enumerate(self.names, 1):
            ends = f"{self.bridge}o{number}", f"{self.bridge}i{number}"
            ip("netns", "add", name)
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", name)
            ip("link", "set", ends[0], "master", self.bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", ends[1])
            for device in (ends[1], "lo"):
                ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for name in self.names:
            for process_id in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                os.kill(int(process_id), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, stderr=subprocess.DEVNULL)

    def start(self, number: int, *line: str, **environment: str) -> subprocess.Popen[bytes]:
        words = ["ip", "netns", "exec", self.names[number - 1], *line]
        with open(self.log, "ab") as log:
            process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=log)
        self.processes.append(process)
        return process


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip")
    # Needs a privilege and a kernel with both kinds; what fails beyond that is a failure of the test.
    name = f"dt{os.getpid() % 10**8}p"
    for begin, end in (
        (("netns", "add", name), ("netns", "del", name)),
        (("link", "add", name, "type", "bridge"), ("link", "del", name)),
    ):
        try:
            ip(*begin)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this host makes no network namespaces or bridges: {error.stderr.decode().strip()}")
        ip(*end)
    hosts = Hosts(tmp_path / "log")
    try:
        yield hosts.__enter__()
    finally:
        hosts.__exit__()


def test_three_hosts_of_dask_give_the_files_of_a_local_run(hosts: Hosts, folder: Path, expected: dict[str, bytes]) -> None:
    pytest.importorskip("distributed")
    python = (sys.executable, "-m")
    hosts.start(1, *python, "distributed.cli.dask_scheduler", "--host", "10.77.0.1", "--port", "8786", "--no-dashboard")
    options = ("--no-dashboard", "--nthreads", "1", "--no-nanny", "--memory-limit", "0")
    workers = [
        hosts.start(
            number, *python, "distributed.cli.dask_worker", "tcp://10.77.0.1:8786", "--host", f"10.77.0.{number}", *options
        )
        for number in (1, 2, 3)
    ]
    out = folder / "dask-hosts"
    assert_killed_run_is_complete(hosts, folder, out, ["dask", "--address", "tcp://10.77.0.1:8786"], lambda: workers[2].pid)
    assert files_of(out) == expected


def test_three_hosts_of_ray_give_the_files_of_a_local_run(
    hosts: Hosts, folder: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = (
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        "--num-cpus",
        "1",
        "--object-store-memory",
        "80000000",
    )
    # Each host needs a folder of its own; the paths of sockets in it must be short.
    folders = [Path("/tmp") / f"dovetail{os.getpid()}r{number}" for number in (1, 2, 3)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
    out = folder / "ray-hosts"
    try:
        head = ("--head", "--port", "6379", "--include-dashboard", "false", "--temp-dir", str(folders[0]))
        hosts.start(1, *ray, "--node-ip-address", "10.77.0.1", *head, **quiet)
        wait_for_port(hosts, "10.77.0.1", 6379)
        for number in (2, 3):
            words = ("--address", "10.77.0.1:6379", "--temp-dir", str(folders[number - 1]))
            hosts.start(number, *ray, "--node-ip-address", f"10.77.0.{number}", *words, **quiet)
        assert_killed_run_is_complete(
            hosts, folder, out, ["ray", "--address", "10.77.0.1:6379"], lambda: descendants(b"ray::_Worker")[-1]
        )
    finally:
        hosts.__exit__()
        for each in folders:
            shutil.rmtree(each, ignore_errors=True)
    assert files_of(out) == expected


def wait_for_port(hosts: Hosts, host: str, port: int) -> None:
    code = f"import socket; socket.create_connection(({host!r}, {port}), 1)"
    line = ["ip", "netns", "exec", hosts.names[0], sys.executable, "-c", code]
    end = time.monotonic() + 30
    while subprocess.run(line, stderr=subprocess.DEVNULL).returncode:
        assert time.monotonic() < end
        time.sleep(0.2)


def assert_killed_run_is_complete(hosts: Hosts, folder: Path, out: Path, engine: list[str], worker: Callable[[], int]) -> None:
    """Run the command on the first host, kill a worker, then the driver, and repeat the command: it must end well."""
    line = ["map", str(folder / "model.onnx"), str(folder / "rows.npy"), "-o", str(out), "--part-rows", str(PART_ROWS)]
    line = [sys.executable, "-m", "dovetail.cli", *line, "--engine", *engine]
    driver = hosts.start(1, *line)
    wait_for_parts(hosts, out, PARTS // 3, driver)
    os.kill(worker(), signal.SIGKILL)
    wait_for_parts(hosts, out, PARTS // 2, driver)
    driver.kill()
    driver.wait()
    assert len(list((out / "row").glob("part-*.npy"))) < PARTS
    assert hosts.start(1, *line).wait(60) == 0


def wait_for_parts(hosts: Hosts, out: Path, count: int, driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while len(list((out / "row").glob("part-*.npy"))) < count:
        assert time.monotonic() < end and driver.poll() is None, hosts.log.read_text()[-4000:]
        time.sleep(0.01)
