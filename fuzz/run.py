"""Fuzz the readers, the checker, inference, the writers and both engines with mutated model files.

``python fuzz/run.py --seconds 60`` takes a new seed and prints it; ``--seed S --count N`` makes the same files again, and
``--only I`` the one file of that number. Findings (a crash, an exception that is not a DovetailError, more than 10 s of processor
time, more memory than 1 GiB and 20 times the file) are kept in ``build/fuzz``, one folder for each fault, with the smallest file
that shows it. The last line has the counts; the exit code is 1 where there was a finding.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random as randoms
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

# Before numpy is imported. Processes that it starts inherit the variables; a test that imports it keeps its own.
if __name__ == "__main__":
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", DOVETAIL_THREADS="1")
sys.path.insert(0, str(Path(__file__).parent))

import protobuf_mutator
import stages
import text_mutator
import xml_mutator
from minimize import minimized
from seeds import Corpus, File, make_corpus

BATCH = 1000
"""Files that one process takes."""
PATIENCE = 600.0
"""Seconds without progress after which a process is ended: a deadlock spends no processor time."""
_CELLS = 2 + 2 * len(stages.STAGES)


def make_file(corpus: Corpus, seed: str, index: int) -> tuple[str, File]:
    """Return the mutated file of a number, and the name of the seed that it was made from."""
    random = Random(f"{seed}:{index}")
    if random.random() < 0.6:
        name, file = random.choice(corpus.onnx)
        _, donor = random.choice(corpus.onnx)
        return name, File(".onnx", protobuf_mutator.mutate(file.data, donor.data, corpus.onnx_kinds, random))
    if random.random() < 0.5:
        name, file = random.choice(corpus.text)
        _, donor = random.choice(corpus.text)
        return name, File(".dt", text_mutator.mutate(file.data, donor.data, corpus.text_kinds, random), file.weights)
    name, file = random.choice(corpus.ir)
    _, donor = random.choice(corpus.ir)
    made = xml_mutator.mutate(file.data, file.weights, donor.data, donor.weights, corpus.ir_kinds, random)
    return name, File(".xml", *made)


class Progress:
    """Numbers that a worker writes and its parent reads: the file's number, the stage, and outcomes of each stage."""

    def __init__(self) -> None:
        self.shared = mmap.mmap(-1, 8 * _CELLS)

    def get(self, cell: int) -> int:
        return int(struct.unpack_from("q", self.shared, 8 * cell)[0])

    def set(self, cell: int, number: int) -> None:
        struct.pack_into("q", self.shared, 8 * cell, number)

    def note(self, place: int, is_result: bool) -> None:
        """Count a stage that begins, and one that gave a result."""
        self.set(1, place)
        cell = 2 + 2 * place + is_result
        self.set(cell, self.get(cell) + 1)


class Worker:
    """A slot: one child process after another, each with a batch of files."""

    def __init__(self, corpus: Corpus, seed: str, findings: Findings) -> None:
        self.corpus, self.seed, self.findings = corpus, seed, findings
        self.progress = Progress()
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.stack = open(self.folder / "stack", "w+b", buffering=0)  # noqa: SIM115 - the children write it
        self.pid = 0
        self.end = 0

    def start(self, first: int, end: int) -> None:
        self.end, self.last, self.moved = end, first, time.monotonic()
        self.progress.set(0, first)
        self.stack.seek(0)
        self.stack.truncate()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                stages.arm(self.stack)
                self._run(first, end)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def _run(self, first: int, end: int) -> None:
        inside = self.folder / "inside"
        for index in range(first, end):
            self.progress.set(0, index)
            name, file = make_file(self.corpus, self.seed, index)
            shutil.rmtree(inside, ignore_errors=True)
            inside.mkdir()
            try:
                stages.run_file(file, inside, Random(index), self.progress.note)
            except stages.Finding as found:
                self.findings.keep(index, name, file, found)
        self.progress.set(0, end)

    def poll(self) -> bool:
        """Return whether the child has ended; it goes on behind a file that killed it."""
        index = self.progress.get(0)
        if index != self.last:
            self.last, self.moved = index, time.monotonic()
        elif time.monotonic() - self.moved > PATIENCE:
            os.kill(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return False
        index = self.progress.get(0)
        if status and index < self.end:
            name, file = make_file(self.corpus, self.seed, index)
            self.stack.seek(0)
            self.findings.keep(
                index, name, file, _death(status, self.progress.get(1), self.stack.read().decode(errors="replace"))
            )
            if index + 1 < self.end:
                self.start(index + 1, self.end)
                return False
        return True


def _death(status: int, place: int, stack: str) -> stages.Finding:
    """Return the finding of a child that ended by a signal."""
    number = os.waitstatus_to_exitcode(status)
    reason = signal.Signals(-number).name if number < 0 else f"exit-{number}"
    lines = re.findall(r'File "[^"]*/dovetail/([^"]*)\.py", line \d+ in (\w+)', stack)
    where = f"{lines[0][0].replace('/', '.')}.{lines[0][1]}" if lines else "outside"
    kind = "hang" if reason in ("SIGXCPU", "SIGKILL") else "crash"
    return stages.Finding(stages.STAGES[place], f"{kind}-{reason}-{where}", stack)


class Findings:
    """The folder of findings: one folder a fault, with the smallest file, its seed and its stack."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.folder, self.seed = folder, seed

    def keep(self, index: int, name: str, file: File, found: stages.Finding) -> None:
        place = self.folder / re.sub(r"[^\w.-]", "_", found.key)[:120]
        place.mkdir(parents=True, exist_ok=True)
        with (place / "seen").open("a") as stream:
            stream.write(f"{self.seed}:{index} {found.stage} {name} {file.size} bytes\n")
        old = [each for each in place.glob("model.*") if each.suffix in (".onnx", ".xml", ".dt")]
        if not old or old[0].stat().st_size > len(file.data):
            for each in place.glob("model.*"):
                each.unlink()
            file.write(place)
            (place / "stack.txt").write_text(f"--seed {self.seed} --only {index}\n{found.stage}: {found.key}\n{found.detail}")
            if not old:
                print(f"finding: {found.stage}: {found.key} (--seed {self.seed} --only {index}), from {name!r}", flush=True)

    def counts(self) -> Counter[str]:
        return Counter({each.parent.name: len(each.read_text().splitlines()) for each in sorted(self.folder.glob("*/seen"))})


def fuzz(arguments: argparse.Namespace) -> int:
    """Run the workers until the files or the time are spent; return the exit code."""
    warnings.simplefilter("ignore")
    corpus = make_corpus()
    shutil.rmtree(arguments.out, ignore_errors=True)
    findings = Findings(arguments.out, arguments.seed)
    print(f"seed {arguments.seed}: {len(corpus.onnx)} ONNX and {len(corpus.ir)} IR files to begin with", flush=True)
    import gc

    gc.collect()
    gc.freeze()
    begin = time.monotonic()
    step = min(BATCH, max(1, arguments.count // arguments.workers))
    following = arguments.start
    last = arguments.start + arguments.count
    totals: Counter[Any] = Counter()
    workers = [Worker(corpus, arguments.seed, findings) for _ in range(arguments.workers)]
    busy: list[Worker] = []
    reported = begin
    while True:
        in_time = time.monotonic() - begin < arguments.seconds
        for worker in workers:
            if worker not in busy and following < last and in_time:
                worker.start(following, min(following + step, last))
                following = min(following + step, last)
                busy.append(worker)
        busy = [worker for worker in busy if not worker.poll()]
        if not in_time:
            for worker in busy:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
            busy = []
        if not busy and (following >= last or not in_time):
            break
        if time.monotonic() - reported > 60:
            reported = time.monotonic()
            print(f"{_done(workers)} files, {_done(workers) / (reported - begin):.0f} a second", flush=True)
        time.sleep(0.05)
    took = time.monotonic() - begin
    for place, stage in enumerate(stages.STAGES):
        totals[stage] = sum(worker.progress.get(2 + 2 * place) for worker in workers)
        results = sum(worker.progress.get(3 + 2 * place) for worker in workers)
        print(f"{stage:10} {totals[stage]:9} files, {results:9} results")
    for worker in workers:
        worker.stack.close()
        shutil.rmtree(worker.folder, ignore_errors=True)
    found = findings.counts()
    if arguments.minimize:
        for key in found:
            minimized(arguments.out / key)
    for key, count in found.most_common():
        print(f"{count:7} {key}")
    done = totals["load"]
    print(f"{done} files, {done / took:.0f} a second, {len(found)} faults in {sum(found.values())} files (seed {arguments.seed})")
    return 1 if found else 0


def _done(workers: list[Worker]) -> int:
    return sum(worker.progress.get(2) for worker in workers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10**9, help="files to make")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="wall-clock seconds to go on")
    parser.add_argument("--seed", default=None, help="any text; a new one without it")
    parser.add_argument("--start", type=int, default=0, help="number of the first file")
    parser.add_argument("--only", type=int, default=None, help="number of the one file to make")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minimize", action="store_true", help="shrink what was found")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = str(randoms.SystemRandom().randrange(10**9))
    if arguments.only is not None:
        arguments.start, arguments.count, arguments.workers = arguments.only, 1, 1
    return fuzz(arguments)


if __name__ == "__main__":
    sys.exit(main())
