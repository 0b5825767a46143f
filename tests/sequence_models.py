"""Models of lists of tensors and optional values, as text, and what they are run on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Sample(NamedTuple):
    """A model as text, what it is run on, whether it can be written without lists, and why onnxruntime gives something else."""

    text: str
    runs: list[list[Any]]
    is_plain: bool = False
    unlike: str = ""
    opset: int = 18


def floats(*shape: int, start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start, start + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


A, B, C = floats(2, 3), floats(2, 3, start=10), floats(1, 3, start=20)
ONE = np.int64(1)

THREE = "xs = SequenceConstruct (a, b, c)"
LOOP = "Loop (n, go, empty) <body: graph = b (int64 i, bool g, seq(float) s) => (bool g2, seq(float) t)"
SAMPLES: dict[str, Sample] = {
    "one of three": Sample(
        f"main (float[2,3] a, float[2,3] b, float[1,3] c) => (float[m,3] y) {{ {THREE} one = Constant <value = int64 {{1}}> () "
        "y = SequenceAt (xs, one) }",
        [[A, B, C]],
        is_plain=True,
    ),
    "the last, counted from the end": Sample(
        f"main (float[2,3] a, float[2,3] b, float[1,3] c) => (float[m,3] y) {{ {THREE} one = Constant <value = int32 {{-1}}> () "
        "y = SequenceAt (xs, one) }",
        [[A, B, C]],
        is_plain=True,
    ),
    "one that the run chooses": Sample(
        f"main (float[2,3] a, float[2,3] b, float[1,3] c, int64 i) => (float[m,3] y, int64 n) {{ {THREE} y = SequenceAt (xs, i) "
        "n = SequenceLength (xs) }",
        [[A, B, C, np.int64(place)] for place in (0, 2, -3)],
    ),
    "a list goes out": Sample(
        f"main (float[2,3] a, float[2,3] b, float[1,3] c) => (seq(float[m,3]) xs) {{ {THREE} }}", [[A, B, C]]
    ),
    "a list comes in": Sample(
        "main (seq(float[m,3]) xs, int64 i) => (float[m2,3] y, int64 n, seq(float[m,3]) zs) { y = SequenceAt (xs, i) "
        "n = SequenceLength (xs) zs = Identity (xs) }",
        [[[A, B, C], ONE], [[A], np.int64(-1)]],
    ),
    "an empty list": Sample(
        "main (float[2] a) => (int64 n, int64 m, seq(int64) xs) { none = SequenceEmpty () n = SequenceLength (none) "
        "xs = SequenceEmpty <dtype = 7> () one = SequenceInsert (none, a) m = SequenceLength (one) }",
        [[floats(2)]],
    ),
    "put in and taken out": Sample(
        "main (float[2,3] a, float[2,3] b, float[1,3] c) => (float[m,3] y, float[k,3] z, int64 n) { none = SequenceEmpty () "
        "zero = Constant <value = int64 {0}> () minus = Constant <value = int64 {-1}> () one = SequenceInsert (none, a) "
        "two = SequenceInsert (one, b, zero) three = SequenceInsert (two, c, minus) less = SequenceErase (three, zero) "
        "least = SequenceErase (three) y = SequenceAt (less, zero) z = SequenceAt (least, minus) n = SequenceLength (least) }",
        [[A, B, C]],
        is_plain=True,
    ),
    "put in and taken out where the run says": Sample(
        "main (seq(float[k,3]) xs, float[2,3] a, int64 i, int64 j) => (seq(float[l,3]) y) { more = SequenceInsert (xs, a, i) "
        "y = SequenceErase (more, j) }",
        [[[A, C], B, np.int64(i), np.int64(j)] for i, j in ((0, 0), (2, 1), (-2, -3), (1, 2))],
    ),
    "cut into pieces of one": Sample(
        "main (float[4,3] x, int64 i) => (float[3] y, int64 n) { xs = SplitToSequence <keepdims = 0> (x) y = SequenceAt (xs, i) "
        "n = SequenceLength (xs) }",
        [[floats(4, 3), np.int64(place)] for place in (0, 3, -4)],
        is_plain=True,
    ),
    "an open number of pieces of one": Sample(
        "main (float[n,3] x, int64 i) => (float[1,3] y, int64 count) { xs = SplitToSequence <axis = -2> (x) "
        "y = SequenceAt (xs, i) count = SequenceLength (xs) }",
        [[floats(count, 3), np.int64(-1)] for count in (1, 4)],
        is_plain=True,
    ),
    "cut into pieces of two": Sample(
        "main (float[3,5] x) => (float[3,2] a, float[3,1] b, int64 n) { two = Constant <value = int64 {2}> () "
        "zero = Constant <value = int64 {0}> () xs = SplitToSequence <axis = 1> (x, two) "
        "a = SequenceAt (xs, zero) b = SequenceAt (xs, two) n = SequenceLength (xs) }",
        [[floats(3, 5)]],
        is_plain=True,
    ),
    "cut into pieces of length one by an input": Sample(
        "main (float[3,2] x, int64 i) => (float[3,1] a) { one = Constant <value = int64 {1}> () "
        "xs = SplitToSequence <axis = 1, keepdims = 0> (x, one) a = SequenceAt (xs, i) }",
        [[floats(3, 2), ONE]],
        is_plain=True,
        unlike="onnxruntime does not ignore keepdims beside lengths",
    ),
    "one of three alike, that the run chooses": Sample(
        "main (float[2,3] a, float[2,3] b, int64 i) => (float[2,3] y) { xs = SequenceConstruct (b, a, b) "
        "y = SequenceAt (xs, i) }",
        [[A, B, np.int64(place)] for place in (0, 1, -1)],
        is_plain=True,
    ),
    "an open number of pieces of two": Sample(
        "main (float[n,3] x) => (seq(float[m,3]) xs, int64 count) { two = Constant <value = int64 {2}> () "
        "xs = SplitToSequence (x, two) count = SequenceLength (xs) }",
        [[floats(count, 3)] for count in (2, 5)],
    ),
    "cut as a vector says": Sample(
        "main (float[6,2] x) => (float[1,2] a, float[3,2] b, float[5,2] c) { how = Constant <value = int32[3] {1, 2, 3}> () "
        "zero = Constant <value = int64 {0}> () last = Constant <value = int64 {2}> () xs = SplitToSequence (x, how) "
        "a = SequenceAt (xs, zero) b = SequenceAt (xs, last) less = SequenceErase (xs, zero) "
        "c = ConcatFromSequence <axis = 0> (less) }",
        [[floats(6, 2)]],
        is_plain=True,
    ),
    "cut as the run says": Sample(
        "main (float[6,2] x, int64[3] how, int64 size) => (seq(float[k,2]) y, seq(float[k,2]) z) { y = SplitToSequence (x, how) "
        "z = SplitToSequence (x, size) }",
        [[floats(6, 2), np.int64([1, 5, 0]), np.int64(4)], [floats(6, 2), np.int64([2, 2, 2]), np.int64(9)]],
    ),
    "concatenated": Sample(
        f"main (float[2,3] a, float[2,3] b, float[1,3] c) => (float[5,3] y) {{ {THREE} "
        "y = ConcatFromSequence <axis = -2> (xs) }",
        [[A, B, C]],
        is_plain=True,
    ),
    "stacked": Sample(
        "main (float[2,3] a, float[2,3] b) => (float[2,3,2] y, float[2,2,3] z) { xs = SequenceConstruct (a, b) "
        "y = ConcatFromSequence <axis = -1, new_axis = 1> (xs) z = ConcatFromSequence <axis = 0, new_axis = 1> (xs) }",
        [[A, B]],
        is_plain=True,
    ),
    "a list that comes in, concatenated": Sample(
        "main (seq(float[m,3]) xs) => (float[n,3] y) { y = ConcatFromSequence <axis = 0> (xs) }", [[[A, B, C]], [[C]]]
    ),
    "scalars stacked": Sample(
        "main (float a, float b) => (float[2] y) { xs = SequenceConstruct (a, b) "
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (xs) }",
        [[np.float32(1), np.float32(2)]],
        is_plain=True,
    ),
    "texts": Sample(
        "main (string[2] a, string[1] b) => (seq(string[n]) xs, string[m] y) { xs = SequenceConstruct (a, b) "
        "y = ConcatFromSequence <axis = 0> (xs) }",
        [[np.array(["a", "b"], object), np.array(["c"], object)]],
    ),
    "a loop that gathers": Sample(
        f"""main (int64 n, float[k] x) => (seq(float) y) {{
            go = Constant <value = bool {{1}}> ()
            empty = SequenceEmpty ()
            y = {LOOP} {{
                zero = Constant <value = int64[1] {{0}}> ()
                one = Constant <value = int64[1] {{1}}> ()
                end = Add (i, one)
                part = Slice (x, zero, end)
                t = SequenceInsert (s, part)
                g2 = Identity (g)
            }}>
        }}""",
        [[np.int64(n), floats(4)] for n in (0, 1, 3)],
    ),
    "a loop that takes": Sample(
        """main (seq(float[k,3]) xs) => (float[3] y) {
            go = Constant <value = bool {1}> ()
            zeros = Constant <value = float[3] {0.0, 0.0, 0.0}> ()
            n = SequenceLength (xs)
            y = Loop (n, go, zeros) <body: graph = b (int64 i, bool g, float[3] s) => (bool g2, float[3] t) {
                axes = Constant <value = int64[1] {0}> ()
                part = SequenceAt (xs, i)
                row = ReduceSum <keepdims = 0> (part, axes)
                t = Add (s, row)
                g2 = Identity (g)
            }>
        }""",
        [[[A, B, C]], [[C]], [[]]],
    ),
    "a loop over the rows of a tensor, which stacks what it makes of them": Sample(
        f"""main (float[n,3] x, float[3] w) => (float[n,3] y, float[3,n] z) {{
            go = Constant <value = bool {{1}}> ()
            empty = SequenceEmpty ()
            xs = SplitToSequence <keepdims = 0> (x)
            n = SequenceLength (xs)
            ys = {LOOP} {{
                row = SequenceAt (xs, i)
                part = Mul (row, w)
                t = SequenceInsert (s, part)
                g2 = Identity (g)
            }}>
            y = ConcatFromSequence <axis = 0, new_axis = 1> (ys)
            z = ConcatFromSequence <axis = 1, new_axis = 1> (ys)
        }}""",
        [[floats(4, 3), floats(3)], [floats(1, 3), floats(3)]],
        is_plain=True,
    ),
    "a loop whose parts are concatenated": Sample(
        f"""main (float[2,4,3] x, int64 n) => (float[2,k,3] y, float[m,3] z, float[3] first) {{
            go = Constant <value = bool {{1}}> ()
            empty = SequenceEmpty ()
            zero = Constant <value = int64 {{0}}> ()
            ys = {LOOP} {{
                part = Gather <axis = 1> (x, i)
                t = SequenceInsert (s, part)
                g2 = Identity (g)
            }}>
            rows = ConcatFromSequence <axis = 0> (ys)
            y = ConcatFromSequence <axis = 1, new_axis = 1> (ys)
            z = Add (rows, rows)
            one = SequenceAt (ys, zero)
            first = Gather <axis = 0> (one, zero)
        }}""",
        [[floats(2, 4, 3), np.int64(3)], [floats(2, 4, 3), np.int64(1)]],
        is_plain=True,
    ),
    "a loop whose parts are of open sizes": Sample(
        f"""main (float[k,4] x, int64 n) => (float[m,4] y) {{
            go = Constant <value = bool {{1}}> ()
            empty = SequenceEmpty ()
            ys = {LOOP} {{
                one = Constant <value = int64[1] {{1}}> ()
                two = Constant <value = int64[1] {{2}}> ()
                at = Reshape (i, one)
                end = Add (at, two)
                part = Slice (x, at, end)
                t = SequenceInsert (s, part)
                g2 = Identity (g)
            }}>
            y = ConcatFromSequence <axis = 0> (ys)
        }}""",
        [[floats(4, 4), np.int64(3)]],
    ),
    "a loop that carries two": Sample(
        """main (float[2] a, float[2] b, int64 n) => (float[2] y, float[2] z, int64 count) {
            go = Constant <value = bool {1}> ()
            zero = Constant <value = int64 {0}> ()
            last = Constant <value = int64 {-1}> ()
            both = SequenceConstruct (a, b)
            after = Loop (n, go, both) <body: graph = b (int64 i, bool g, seq(float[2]) s) => (bool g2, seq(float[2]) t) {
                nil = Constant <value = int64 {0}> ()
                p = SequenceAt (s, nil)
                less = SequenceErase (s, nil)
                q = SequenceAt (less, nil)
                sum = Add (p, q)
                t = SequenceInsert (less, sum)
                g2 = Identity (g)
            }>
            y = SequenceAt (after, zero)
            z = SequenceAt (after, last)
            count = SequenceLength (after)
        }""",
        [[floats(2), floats(2, start=1), np.int64(n)] for n in (0, 1, 5)],
        is_plain=True,
    ),
    "a list that a branch reads": Sample(
        """main (bool which, float[2,3] a, float[2,3] b, int64 i) => (float[2,3] y, float[4,3] z) {
            xs = SequenceConstruct (a, b)
            ys, y = If (which) <
                then_branch: graph = t () => (seq(float[2,3]) one, float[2,3] p) { p = SequenceAt (xs, i) one = Identity (xs) },
                else_branch: graph = e () => (seq(float[2,3]) two, float[2,3] q) {
                    two = SequenceConstruct (b, a)
                    q = SequenceAt (two, i)
                }
            >
            z = ConcatFromSequence <axis = 0> (ys)
        }""",
        [[np.bool_(which), A, B, np.int64(place)] for which in (True, False) for place in (0, -1)],
        is_plain=True,
    ),
    "a map over the rows of a tensor": Sample(
        """main (float[4,3] x, float[3] w) => (float[4,3] y) {
            xs = SplitToSequence <keepdims = 0> (x)
            ys = SequenceMap (xs, w) <body: graph = b (float[3] row, float[3] v) => (float[3] made) { made = Mul (row, v) }>
            y = ConcatFromSequence <axis = 0, new_axis = 1> (ys)
        }""",
        [[floats(4, 3), floats(3)]],
        is_plain=True,
    ),
    **{
        f"{'kept' if keeps else 'dropped'} pieces, axis {cut}, {'stacked' if new else 'concatenated'} {axis}": Sample(
            f"main (float[n,2,3] x) => (float[{', '.join('abcd'[: 2 + keeps + new])}] y) {{ "
            f"xs = SplitToSequence <keepdims = {keeps}, axis = {cut}> (x) "
            f"y = ConcatFromSequence <axis = {axis}, new_axis = {new}> (xs) }}",
            [[floats(4, 2, 3)]],
            is_plain=True,
        )
        for keeps, cut, new, axis in (
            *((0, cut, 1, axis) for cut in (0, 1) for axis in (0, 1, 2)),
            *((0, cut, 0, axis) for cut in (0, 2) for axis in (0, 1)),
            *((1, cut, 1, axis) for cut in (0, 1) for axis in (0, 1, 3)),
            *((1, cut, 0, cut) for cut in (0, 1)),
            (1, 1, 0, 0),
        )
    },
    "a list from either branch": Sample(
        """main (bool which, float[2,3] a, float[2,3] b) => (seq(float[2,3]) xs, int64 n) {
            xs = If (which) <
                then_branch: graph = t () => (seq(float[2,3]) one) { one = SequenceConstruct (a) },
                else_branch: graph = e () => (seq(float[2,3]) two) { two = SequenceConstruct (a, b) }
            >
            n = SequenceLength (xs)
        }""",
        [[np.bool_(which), A, B] for which in (True, False)],
    ),
    "a map over lists": Sample(
        """main (seq(float[k,3]) xs, seq(float[l,3]) ys, float[3] z) => (seq(float[k,3]) sums, seq(int64[2]) shapes) {
            sums, shapes = SequenceMap (xs, ys, z) <body: graph = b (float[k,3] x, float[l,3] y, float[3] w) =>
                (float[k,3] total, int64[2] shape) {
                both = Add (x, y)
                total = Add (both, w)
                shape = Shape (x)
            }>
        }""",
        [[[A, C], [B, C], floats(3)], [[], [], floats(3)]],
    ),
    "a map that hands on": Sample(
        """main (seq(float[k,3]) xs) => (seq(float[k,3]) ys) {
            ys = SequenceMap (xs) <body: graph = b (float[k,3] x) => (float[k,3] y) { y = Identity (x) }>
        }""",
        [[[A, C]]],
    ),
    "something that may be nothing": Sample(
        "main (optional(float[2,3]) x) => (bool is_there) { is_there = OptionalHasElement (x) }", [[A], [None]]
    ),
    "what is there": Sample("main (optional(float[2,3]) x) => (float[2,3] y) { y = OptionalGetElement (x) }", [[A]]),
    "what is there of a list": Sample(
        "main (optional(seq(float[m,3])) x) => (seq(float[k,3]) y) { y = OptionalGetElement (x) }", [[[A, C]]]
    ),
    "wrapped and unwrapped": Sample(
        "main (float[2,3] x) => (float[2,3] y, bool is_there, bool is_not) { w = Optional (x) is_there = OptionalHasElement (w) "
        "v = OptionalGetElement (w) y = Neg (v) no = Optional <type = float[2,3]> () is_not = OptionalHasElement (no) }",
        [[A]],
        is_plain=True,
    ),
    "nothing of a kind": Sample(
        "main (float[2,3] x) => (optional(seq(float[m,3])) y, float[2,3] z) { y = Optional <type = seq(float[N,3])> () "
        "z = Neg (x) }",
        [[A]],
    ),
    "no optional value at all": Sample(
        "main (float[2,3] x) => (float[2,3] y, bool is_there, bool is_not) { is_there = OptionalHasElement (x) "
        "v = OptionalGetElement (x) y = Neg (v) is_not = OptionalHasElement () }",
        [[A]],
        is_plain=True,
    ),
}
