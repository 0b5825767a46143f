"""Which tensors share memory, by windows alone: what is placed lies where its windows say, and what cannot be is copied."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dovetail.engine.memory.affine_layout import Layout
from dovetail.engine.memory.alias_assignment import assign_aliases
from dovetail.engine.memory.aliasing import AliasMap
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor
from dovetail.ir.dtypes import f32
from dovetail.ir.op import Window, Windows
from dovetail.ir.types import Tensor


def tensor(name: str, *shape: int) -> RunTensor:
    return RunTensor(name, Tensor(f32, shape), shape, f32)


def indices(layout: Layout) -> list[int]:
    """Return the offsets of a layout's elements, in row-major order."""
    found = np.array([layout.offset])
    for size, stride in layout.modes:
        found = np.add.outer(found, np.arange(size) * stride).reshape(-1)
    return found.tolist()


def box(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return indices(Layout(offset, tuple(zip(sizes, strides, strict=True))))


def row_major(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(sizes[place + 1 :]) for place in range(len(sizes)))


def lies(aliases: AliasMap, each: RunTensor) -> tuple[str, list[int]]:
    root, layout = aliases.of(each)
    return root.name, indices(layout)


# One window

WINDOWS: dict[str, tuple[Window, int, bool]] = {
    "all": (Window(0, 0, (12,), 0, (1,), 0, (1,)), 12, True),
    "all, by axes": (Window(0, 0, (3, 4), 0, (4, 1), 0, (4, 1)), 12, True),
    "all, transposed": (Window(0, 0, (4, 3), 0, (1, 4), 0, (3, 1)), 12, True),
    "all, transposed, by the other's axes": (Window(0, 0, (3, 4), 0, (4, 1), 0, (1, 3)), 12, True),
    "all, an axis of one element": (Window(0, 0, (3, 1, 4), 0, (4, 7, 1), 0, (4, 9, 1)), 12, True),
    "all, an axis of one element outermost": (Window(0, 0, (1, 3, 4), 0, (0, 4, 1), 0, (0, 4, 1)), 12, True),
    "every other": (Window(0, 0, (6,), 0, (2,), 0, (1,)), 6, True),
    "from the middle": (Window(0, 0, (6,), 3, (1,), 0, (1,)), 6, True),
    "backwards": (Window(0, 0, (6,), 11, (-1,), 0, (1,)), 6, True),
    "repeated": (Window(0, 0, (2, 12), 0, (0, 1), 0, (12, 1)), 24, True),
    "into the middle": (Window(0, 0, (6,), 0, (1,), 3, (1,)), 12, False),
    "into every other": (Window(0, 0, (6,), 0, (1,), 0, (2,)), 12, False),
    "into a part": (Window(0, 0, (6,), 0, (1,), 0, (1,)), 12, False),
    "into the end": (Window(0, 0, (6,), 0, (1,), 6, (1,)), 12, False),
    "written backwards": (Window(0, 0, (12,), 0, (1,), 11, (-1,)), 12, False),
    "nothing": (Window(0, 0, (0,), 0, (1,), 0, (1,)), 0, False),
    "nothing, by axes": (Window(0, 0, (0, 4), 0, (4, 1), 0, (4, 1)), 0, False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_of_all_of_a_tensor_makes_it_a_view(name: str) -> None:
    window, count, is_view = WINDOWS[name]
    source, target, aliases = tensor("source", 12), tensor("target", count), AliasMap()
    aliases.alias_source(target, source, window)
    assert aliases.is_root(target) == (not is_view)
    if is_view:
        read = box(window.source_offset, window.sizes, window.source_strides)
        written = box(window.target_offset, window.sizes, window.target_strides)
        assert lies(aliases, target) == ("source", [index for _, index in sorted(zip(written, read, strict=True))])
        assert aliases.members(source) == [source, target]


@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "repeated"])
def test_a_window_of_a_complete_source_writes_the_source_in_place(name: str) -> None:
    """The same windows from their other sides."""
    window, count, fits = WINDOWS[name]
    turned = Window(0, 0, window.sizes, window.target_offset, window.target_strides, window.source_offset, window.source_strides)
    source, target, aliases = tensor("source", count), tensor("target", 12), AliasMap()
    assert aliases.write_into(source, target, turned) == fits
    assert aliases.is_root(source) == (not fits)
    if fits:
        read = box(turned.source_offset, turned.sizes, turned.source_strides)
        written = box(turned.target_offset, turned.sizes, turned.target_strides)
        assert lies(aliases, source) == ("target", [index for _, index in sorted(zip(read, written, strict=True))])
        assert aliases.members(target) == [target, source]


WHOLE = Window(0, 0, (12,), 0, (1,), 0, (1,))


def test_an_external_tensor_is_no_alias_and_not_written_into_another() -> None:
    source, target, aliases = tensor("source", 12), tensor("target", 12), AliasMap()
    aliases.external = {source, target}
    aliases.alias_source(target, source, WHOLE)
    assert aliases.is_root(target)
    assert not aliases.write_into(source, target, WHOLE)
    assert aliases.is_root(source)


def test_an_alias_is_not_written_into_another_root() -> None:
    root, part, target, aliases = tensor("root", 12), tensor("part", 6), tensor("target", 6), AliasMap()
    window = Window(0, 0, (6,), 0, (1,), 0, (1,))
    aliases.alias_source(part, root, window)
    assert not aliases.write_into(part, target, window)
    assert lies(aliases, part) == ("root", list(range(6)))


def test_no_tensor_is_written_into_its_own_root() -> None:
    root, turned, aliases = tensor("root", 12), tensor("turned", 12), AliasMap()
    aliases.alias_source(turned, root, WINDOWS["all, transposed"][0])
    assert not aliases.write_into(turned, root, WHOLE)
    assert not aliases.write_into(root, turned, WHOLE)
    assert (aliases.of(root).root, aliases.of(turned).root) == (root, root)


def test_aliases_follow_their_root() -> None:
    inner, view, middle, outer, aliases = (
        tensor("inner", 4),
        tensor("view", 2),
        tensor("middle", 12),
        tensor("outer", 24),
        AliasMap(),
    )
    aliases.alias_source(view, inner, Window(0, 0, (2,), 1, (2,), 0, (1,)))
    assert aliases.write_into(inner, middle, Window(0, 0, (4,), 0, (1,), 8, (1,)))
    assert lies(aliases, view) == ("middle", [9, 11])
    assert aliases.write_into(middle, outer, Window(0, 0, (12,), 0, (1,), 1, (2,)))
    assert [lies(aliases, each) for each in (view, inner)] == [("outer", [19, 23]), ("outer", [17, 19, 21, 23])]
    assert aliases.members(outer) == [outer, middle, inner, view]
    assert aliases.members(middle) == [middle]


def test_a_root_is_not_written_in_place_if_an_alias_would_not_be_affine() -> None:
    """Three elements in rows of two: a row and a half."""
    inner, view, middle, outer, aliases = (
        tensor("inner", 4),
        tensor("view", 3),
        tensor("middle", 4),
        tensor("outer", 9),
        AliasMap(),
    )
    aliases.alias_source(view, inner, Window(0, 0, (3,), 0, (1,), 0, (1,)))
    assert aliases.write_into(inner, middle, Window(0, 0, (4,), 0, (1,), 0, (1,)))
    assert not aliases.write_into(middle, outer, Window(0, 0, (2, 2), 0, (2, 1), 0, (3, 1)))
    assert lies(aliases, view) == ("middle", [0, 1, 2])


# Works


def moving(reads: list[RunTensor], writes: list[RunTensor], *windows: Window) -> KernelCall:
    return KernelCall(MOVE, (), list(reads), writes, windows=Windows(windows))


def test_windows_that_overlap_are_copied_in_their_order() -> None:
    first, second, target = tensor("first", 3), tensor("second", 3), tensor("target", 4)
    call = moving([first, second], [target], Window(0, 0, (3,), 0, (1,), 0, (1,)), Window(1, 0, (3,), 0, (1,), 1, (1,)))
    aliases = AliasMap()
    assign_aliases([call], aliases)
    assert call.windows is not None and aliases.windows_to_copy(call) == list(call.windows.windows)
    assert all(aliases.is_root(each) for each in (first, second, target))


def test_only_movement_steps_give_aliases() -> None:
    source, target, aliases = tensor("source", 12), tensor("target", 12), AliasMap()
    assign_aliases([KernelCall("softmax", (), [source], [target])], aliases)
    assert aliases.is_root(source) and aliases.is_root(target)


def test_constants_and_empty_tensors_are_not_copied() -> None:
    source, known, nothing = tensor("source", 4), tensor("known", 2), tensor("nothing", 0)
    known.data = np.zeros(2, np.float32)
    aliases = AliasMap()
    aliases.external = {source, known}
    windows = [Window(0, 0, (2,), 0, (1,), 0, (1,)), Window(0, 1, (0,), 2, (1,), 0, (1,)), Window(1, 0, (0,), 0, (1,), 0, (1,))]
    assert aliases.windows_to_copy(moving([source, nothing], [known, nothing], *windows)) == []


@st.composite
def graphs(draw: Any) -> tuple[list[RunTensor], list[KernelCall]]:
    """Moves of what was moved before: joined, cut, transposed, reversed, spread out."""
    tensors = [tensor(f"input {place}", draw(st.sampled_from((4, 6, 12)))) for place in range(draw(st.integers(1, 3)))]
    given, calls = len(tensors), []
    for number in range(draw(st.integers(1, 6))):
        x = draw(st.sampled_from(tensors))
        kind = draw(st.sampled_from(("join", "join", "beside", "cut", "transpose", "reverse", "spread")))
        rows = draw(st.sampled_from([size for size in (1, 2, 3, 4, 6) if x.count % size == 0]))
        row = x.count // rows
        if kind in ("join", "beside"):
            # Rows of each, one after the other or side by side.
            others = [x, *draw(st.lists(st.sampled_from([y for y in tensors if y.count % rows == 0]), min_size=1, max_size=2))]
            heights = rows if kind == "beside" else 1
            widths = [y.count // heights for y in others]
            made = [tensor(f"{kind} {number}", sum(y.count for y in others))]
            windows = [
                Window(place, 0, (heights, width), 0, (width, 1), sum(widths[:place]), (sum(widths), 1))
                for place, width in enumerate(widths)
            ]
            calls.append(moving(others, made, *windows))
        elif kind == "cut":
            at = draw(st.integers(0, row))
            widths = [at, row - at]
            made = [tensor(f"cut {number} {part}", rows * width) for part, width in enumerate(widths)]
            windows = [Window(0, part, (rows, w), part * at, (row, 1), 0, (w, 1)) for part, w in enumerate(widths)]
            calls.append(moving([x], made, *windows))
        else:
            sizes, offset, strides = {
                "transpose": ((row, rows), 0, (1, row)),
                "reverse": ((rows, row), x.count - row, (-row, 1)),
                "spread": ((rows, 2, row), 0, (row, 0, 1)),
            }[kind]
            made = [tensor(f"{kind} {number}", prod(sizes))]
            calls.append(moving([x], made, Window(0, 0, sizes, offset, strides, 0, row_major(sizes))))
        tensors += [y for y in made if y.count <= 48]
    return tensors[:given], calls


@given(graphs())
def test_aliases_and_copies_give_the_elements_of_the_windows(graph: tuple[list[RunTensor], list[KernelCall]]) -> None:
    given_tiles, calls = graph
    wanted: dict[RunTensor, np.ndarray[Any, Any]] = {}
    aliases = AliasMap()
    assign_aliases(calls, aliases)
    roots: dict[RunTensor, np.ndarray[Any, Any]] = {}

    def memory(each: RunTensor) -> np.ndarray[Any, Any]:
        return roots.setdefault(each, np.full(each.count, -1))

    for place, each in enumerate(given_tiles):
        wanted[each] = np.arange(each.count) + 100 * place
        root, layout = aliases.of(each)
        memory(root)[indices(layout)] = wanted[each]
    for call in calls:
        assert call.windows is not None
        for y in call.writes:
            wanted[y] = np.full(y.count, -1)
        for window in call.windows.windows:
            source, target = call.reads[window.input], call.writes[window.output]
            assert source is not None
            read = box(window.source_offset, window.sizes, window.source_strides)
            written = box(window.target_offset, window.sizes, window.target_strides)
            wanted[target][written] = wanted[source][read]
            if window in aliases.windows_to_copy(call):
                (root, layout), (into, at) = aliases.of(source), aliases.of(target)
                memory(into)[np.array(indices(at), int)[written]] = memory(root)[np.array(indices(layout), int)[read]]
    for each, want in wanted.items():
        root, layout = aliases.of(each)
        if each.count:
            assert memory(root)[indices(layout)].tolist() == want.tolist(), each
