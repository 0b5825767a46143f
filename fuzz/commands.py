"""Fuzz the command line: options of every verb, and mutated job records, recipes and certificates.

``python fuzz/commands.py --seconds 60`` takes a new seed and prints it; ``--seed S --only I`` runs one case again. A finding is a
command that ends with exit code 7 or by a signal, prints a traceback, or takes more than SECONDS of processor time or
WALL_SECONDS. The exit code is 1 where there was a finding.
"""

from __future__ import annotations

import argparse
import json
import os
import random as randoms
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", DOVETAIL_THREADS="1")
sys.path.insert(0, str(Path(__file__).parent))

import click
import numpy as np

import dovetail
import text_mutator
from dovetail import cli
from dovetail.compare.prove import certificate as certificates
from dovetail.data.rows.job import digest_of

SECONDS = 20
"""Processor time of one command."""
WALL_SECONDS = 60
MEMORY = 4 << 30
"""Bytes of address space that a command may add."""
GOOD_CODES = frozenset(range(7))
TEXTS = (
    "0", "1", "-1", "3", "2147483648", "3000000000", "9223372036854775807", "99999999999999999999", "1e400", "nan", "-inf", "",
    "=", ",", "a=b", "x=2", "x=0", "x=-1", "x=2,3", "x=99999999999999999999", "x=y=z", "batch=2", "0=batch", "*", "[", "\\",
    "\udc80", "{}", "memory=1", "trips=99999999999999999999", "seconds=1e400", "nodes=0", "all", "y", "none", "f32", "x:0", "0:1",
    "5" * 400, "model.onnx", "copy.onnx", "rows.npy", "recipe.toml", "proof.json", "missing", ".", "/dev/null", "/dev/zero",
    "fifo", "new.onnx",
)  # fmt: skip
SKIPPED = frozenset({"engine", "address", "workers", "check", "help", "open_browser"})
"""Options that start clusters, processes or a browser, or run a command of the user."""
REPEATED = frozenset({"rounds", "runs"})
"""Options for the number of measured runs, whose defaults take more than SECONDS."""
_KINDS = ("true", "false", "null", "1", "-1", '"x"', "[]", "{}", "1e400")


def make_folder(folder: Path) -> None:
    """Write the files that commands name: models, rows, a finished job, a recipe with its tensors, a certificate."""
    with dovetail.Builder("double") as b:
        b.output("y", b.Add(x := b.input("x", "f32", ("batch", 4)), x))
    for name in ("model.onnx", "copy.onnx"):
        dovetail.save(b.model, folder / name)
    np.save(folder / "rows.npy", np.ones((40, 4), np.float32))
    mapper, options = dovetail.Mapper(folder / "model.onnx", batch=4), dovetail.MapOptions(part_rows=8)
    dovetail.map_rows(mapper, folder / "rows.npy", folder / "job", workers=1, options=options)
    (folder / "tensors").mkdir()
    for name in ("q", "k", "v"):
        np.save(folder / "tensors" / f"{name}.npy", np.ones((4, 4), np.float32))
    (folder / "recipe.toml").write_text(
        'ranks = 2\ndrop = ["n*"]\n[split]\nq = 0\n[transpose]\nk = [1, 0]\n[cast]\nv = "f16"\n'
        '[rename]\nk = "key"\n[[fuse]]\ninto = "kv"\ntensors = ["k", "v"]\naxis = 0\n'
        '[[unfuse]]\ntensor = "q"\ninto = ["q1", "q2"]\naxis = 0\nsizes = [1, 1]\n'
    )
    models = [dovetail.load(folder / name) for name in ("model.onnx", "copy.onnx")]
    (folder / "proof.json").write_text(json.dumps(dovetail.prove(*models).certificate(), indent=1))
    os.mkfifo(folder / "fifo")


def mutated(path: Path, random: Random, sign: Callable[[Any], Any] | None = None) -> None:
    """Mutate a text file; ``sign`` renews the digest of JSON data in half of the cases."""
    data = text_mutator.mutate(path.read_bytes(), path.read_bytes(), _KINDS, random)
    if sign is not None and random.random() < 0.5:
        # Data of another form is left as it is.
        with suppress(ValueError, TypeError, AttributeError, RecursionError, dovetail.DovetailError):
            data = json.dumps(sign(json.loads(data))).encode()
    path.write_bytes(data)


def signed_record(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "record_digest": digest_of(record)}


def signed_certificate(data: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in data.items() if name != "digest"}
    return {**content, "digest": certificates.digest_of(content)}


def make_command(folder: Path, random: Random) -> list[str]:
    """Return the words of a case, after the change of the file that it reads."""
    kind = random.randrange(6)
    if kind == 0:
        mutated(folder / "job" / "_job.json", random, signed_record)
        restart = ["--restart"] if random.random() < 0.3 else []
        return ["map", "model.onnx", "rows.npy", "-o", "job", "--batch", "4", "--workers", "1", *restart]
    if kind == 1:
        mutated(folder / "recipe.toml", random)
        return ["reshard", "recipe.toml", "tensors", "-o", "new"]
    if kind == 2:
        mutated(folder / "proof.json", random, signed_certificate)
        return ["diff", "model.onnx", "copy.onnx", "--check-certificate", "proof.json"]
    verb = random.choice(sorted(cli.COMMANDS))
    command = cli.dovetail.get_command(None, verb)  # type: ignore[arg-type]
    words = [verb]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words += [random.choice(("model.onnx", "model.onnx", "copy.onnx", random.choice(TEXTS)))]
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in SKIPPED | REPEATED]
    for option in random.sample(options, min(len(options), random.choice((1, 2, 3, 5)))):
        words.append(random.choice(option.opts))
        if not option.is_flag:
            words += [random.choice(_values_of(option, random)) for _ in range(max(option.nargs, 1))]
    if random.random() < 0.2:
        words.append("--json")
    words += [word for option in command.params if option.name in REPEATED for word in (option.opts[0], "1")]
    return words


def _values_of(option: click.Option, random: Random) -> tuple[str, ...]:
    choices = tuple(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else ()
    return choices if choices and random.random() < 0.7 else TEXTS


def run_command(words: list[str], folder: Path) -> str:
    """Run a command in a forked child. Returns a description of the fault; the empty string where there is none."""
    output = folder / "output"
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(folder)
        stream = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in ((0, null), (1, stream), (2, stream)):
            os.dup2(descriptor, number)
        with open("/proc/self/statm") as status:
            used = int(status.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = 0
        try:
            cli.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            code = 99
        sys.stdout.flush()
        os._exit(code)
    deadline = time.monotonic() + WALL_SECONDS
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"takes more than {WALL_SECONDS} s"
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(ended[1])
    text = output.read_text(errors="replace")
    if code not in GOOD_CODES or "Traceback (most recent" in text:
        return f"exit code {code}: {text[-1500:]}"
    return ""


def fuzz(seed: str, start: int, count: int, seconds: float) -> int:
    """Run cases until their number or the time is spent; return the exit code."""
    whole = Path(tempfile.mkdtemp(prefix="fuzz-commands-"))
    faults: dict[str, str] = {}
    index, begin = start, time.monotonic()
    try:
        (whole / "seed").mkdir()
        make_folder(whole / "seed")
        while index < start + count and time.monotonic() - begin < seconds:
            random = Random(f"{seed}:{index}")
            folder = whole / "case"
            shutil.copytree(whole / "seed", folder, ignore=shutil.ignore_patterns("fifo"))
            os.mkfifo(folder / "fifo")
            words = make_command(folder, random)
            fault = run_command(words, folder)
            shutil.rmtree(folder, ignore_errors=True)
            if fault and (key := fault.strip().splitlines()[-1][:120]) not in faults:
                faults[key] = shlex.join(words)
                print(f"finding (--seed {seed} --only {index}): {faults[key]!r}\n{fault}", flush=True)
            index += 1
    finally:
        shutil.rmtree(whole, ignore_errors=True)
    print(f"{index - start} commands, {len(faults)} faults (seed {seed})")
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10**9, help="commands to run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="wall-clock seconds to go on")
    parser.add_argument("--seed", default=None, help="any text; a new one without it")
    parser.add_argument("--only", type=int, default=None, help="number of the one command to run")
    arguments = parser.parse_args()
    seed = str(randoms.SystemRandom().randrange(10**9)) if arguments.seed is None else arguments.seed
    start, count = (0, arguments.count) if arguments.only is None else (arguments.only, 1)
    return fuzz(seed, start, count, arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
