"""Questions put to one model in a process of its own, a line of JSON before and after each.

A reader of a process that has died knows from the lines which question it died of. bench/questions.py is that reader.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dovetail.errors import DovetailError


class Unfilled(Exception):
    """The reason why a cell is empty."""


class PeersFault(Exception):
    """A message of another engine, for which a cell cannot be filled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``reason`` is "" for a filled cell, why it is empty, or None where there is nothing to ask. ``note`` is what the question
    found beside that; ``is_peers`` says that the reason is another engine's."""

    reason: str | None = ""
    note: str = ""
    is_peers: bool = False


Question = Callable[[Any], str | bool | None]
"""Raises or returns why a cell is empty: False where there is nothing to ask, text for a note, None for a plain yes."""


def answer(question: Question, record: Any) -> Answer:
    try:
        found = question(record)
    except PeersFault as reason:
        return Answer(short(str(reason)), is_peers=True)
    except Unfilled as reason:
        return Answer(short(str(reason)))
    except DovetailError as error:
        return Answer(short(f"{type(error).__name__} {error}"))
    except Exception as error:
        return Answer(short(f"{type(error).__name__}: {error}"))
    if found is False:
        return Answer(None)
    return Answer(note=short(found) if isinstance(found, str) else "")


def short(text: str) -> str:
    """In one line, without the folders of files."""
    return re.sub(r"[^\s'\"(]*/(?=[\w.-]+\.(onnx|xml)\b)", "", " ".join(text.split()))[:400]


def ask(cells: Iterable[str], fill: Callable[[str], Answer], seconds: float = 0) -> None:
    """Print the answers. A question that takes more than ``seconds`` (0: any time) ends the process by SIGALRM."""
    for cell in cells:
        print(json.dumps({"cell": cell}), flush=True)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        found = fill(cell)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"cell": cell, **asdict(found)}), flush=True)


def parse_arguments(arguments: list[str], cells: Mapping[str, Any]) -> tuple[str, str, float, list[str]]:
    """Folder, model, seconds a cell and cells, of the command line ``FOLDER ID [--seconds=S] [CELL ...]``."""
    seconds = [float(text.removeprefix("--seconds=")) for text in arguments if text.startswith("--seconds=")]
    folder, name, *chosen = [text for text in arguments if not text.startswith("--seconds=")]
    return folder, name, seconds[0] if seconds else 0, chosen or list(cells)
