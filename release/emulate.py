"""Run the core that was compiled for aarch64 under qemu-user, with its driver native/tests/stress.cpp.

qemu-aarch64 and the C library of aarch64 are needed; Debian has them in ``qemu-user`` and ``libc6-arm64-cross``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SYSROOT = Path("/usr/aarch64-linux-gnu")
SECONDS = 2


def is_core_sound(source: Path, work: Path, compiler: Mapping[str, Path], python: Path) -> bool:
    """Compile the driver for aarch64 and run it for SECONDS seconds; return whether it ends without a fault.

    ``source`` is the folder of the sources, ``compiler`` maps CMake's names to the cross compiler, ``python`` is the environment
    that has CMake and Ninja.
    """
    emulator = shutil.which("qemu-aarch64")
    if emulator is None or not SYSROOT.is_dir():
        print("aarch64: not run, because qemu-user or libc6-arm64-cross is absent")
        return False
    folder = work / "stress"
    tools = {name: str(python.with_name(name)) for name in ("cmake", "ninja")}
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_FLAGS": "-DDOVETAIL_EMULATED",
        "CMAKE_CXX_COMPILER": str(compiler["c++"]),
        "CMAKE_AR": str(compiler["ar"]),
        "CMAKE_RANLIB": str(compiler["ranlib"]),
        "CMAKE_MAKE_PROGRAM": tools["ninja"],
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
    }
    arguments = [f"-D{name}={value}" for name, value in options.items()]
    for command in (
        [tools["cmake"], "-S", str(source / "native" / "tests"), "-B", str(folder), "-G", "Ninja", *arguments],
        [tools["cmake"], "--build", str(folder)],
        [emulator, "-L", str(SYSROOT), str(folder / "stress"), str(SECONDS)],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(f"aarch64: {' '.join(command)} FAILS\n{done.stdout[-4000:]}")
            return False
    print(f"aarch64: the driver of the core passes under {Path(emulator).name}")
    return True
