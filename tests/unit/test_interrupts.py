"""Ctrl-C ends a native run, between two steps and within one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from dovetail.ir.host import native_core

pytestmark = [
    pytest.mark.skipif(not native_core.is_compiled, reason="no native core"),
    pytest.mark.skipif(sys.platform == "win32", reason="signals of another kind"),
]

MODELS = {
    "one product": "x = b.input('x', 'f32', (4000, 8000)); b.output('y', b.MatMul(x, b.constant(np.ones((8000, 4000), 'f'))))",
    "many steps": """
y = x = b.input('x', 'f32', (1024, 1024))
w = b.constant(np.ones((1024, 1024), 'f'))
for _ in range(3000):
    y = b.MatMul(y, w)
b.output('y', y)
""",
}
"""Models whose runs take many seconds."""
CODE = """
import signal, sys, numpy as np, dovetail
# A parent in the background may have left SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with dovetail.Builder() as b:
    exec(sys.argv[1])
program = dovetail.compile(b.model, threads=int(sys.argv[2]))
x = np.ones([size for size in b.model.inputs[0].type.shape], 'f')
try:
    print('running', flush=True)
    while True:
        program(x)
except KeyboardInterrupt:
    print('interrupted', flush=True)
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["one product", "many steps"])
def test_a_signal_ends_a_native_run(name: str, threads: int) -> None:
    command = [sys.executable, "-c", CODE, MODELS[name], str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "DOVETAIL_VERIFY": "0"}) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        try:
            out, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    assert out == "interrupted\n"
    assert child.returncode == 0


def test_a_program_runs_again_after_an_interrupt() -> None:
    code = """
import os, signal, threading, time, numpy as np, dovetail
signal.signal(signal.SIGINT, signal.default_int_handler)
with dovetail.Builder() as b:
    y = x = b.input('x', 'f32', ('n', 512))
    for _ in range(200):
        y = b.MatMul(y, b.constant(np.eye(512, dtype='f')))
    b.output('y', y)
program = dovetail.compile(b.model, threads=2)
large, small = np.ones((60000, 512), 'f'), np.ones((2, 512), 'f')
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        program(large)
except KeyboardInterrupt:
    print(bool((program(small)['y'] == 1).all()))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout) == (0, "True\n"), found.stderr
