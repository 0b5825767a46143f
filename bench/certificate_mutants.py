"""Search for false acceptances of dovetail_check: mutants of models and of certificates, of which none may prove a difference.

    python bench/certificate_mutants.py CORPUS [--count 5000] [--seed 0] [--megabytes 0.3] [--seconds 0.5] [--json]

Pairs of equal models whose certificate dovetail_check accepts: conversions of the models of CORPUS up to a size (bench/prove.py),
whose check takes less than --seconds, and the laws of tests/unit/test_checked_laws.py. A mutant is of one kind:

- model: one edit of a model (bench/equality_mutants.py, a size of an input, the outputs), with the digest of the certificate
- certificate: one edit of the certificate
- both: an edit of a model, which the certificate follows in its operators, types and operands, and often an edit of it
- forged: an edit of a small model, with a certificate that claims the outputs equal (bench/forged_certificates.py)

Both models of an accepted mutant run in the interpreter, on seeded inputs of several sizes, for the verdict "bits" also with NaN,
infinities, zeros of both signs and large numbers. It is a false acceptance if the outputs differ: in bits, or for the verdict
"real" by more than 1e-3 of an output's largest magnitude. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from equality_mutants import EDITS, TELLING, Arrays, Edit, difference, graphs_of, have_equal_bits, infer_again
from forged_certificates import digest_of_text, forge_equal_outputs, write_operator
from prove import variants

import dovetail
import dovetail_check
from dovetail.compare.verification.conversion import random_outputs
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Graph, Model
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.types import Tensor
from dovetail.runtime.random_inputs import random_inputs
from dovetail_check.sizes import Symbols
from dovetail_check.text import Line, read_weights

ROOT = Path(__file__).resolve().parent.parent
FILES = ("first.dt", "second.dt")
KINDS = ("model", "certificate", "both", "forged")
MAX_FORGED = 40
"""Maximum number of nodes of the models whose certificates are forged."""
TRIES = 20
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 2.5, -3.0)
Data = dict[str, Any]


# Edits of models


def edit_size(graph: Graph, draw: random.Random) -> str | None:
    """Change a size of an input, or make an open size that of another axis."""
    inputs = [x for x in graph.inputs if isinstance(x.type, Tensor) and x.type.shape]
    if not inputs:
        return None
    x = draw.choice(inputs)
    assert isinstance(x.type, Tensor)
    shape = list(x.type.shape or ())
    axis = draw.randrange(len(shape))
    others = [each for other in inputs if isinstance(other.type, Tensor) for each in other.type.shape or ()]
    old = shape[axis]
    shape[axis] = draw.choice([old + 1, max(old - 1, 0), 1] if isinstance(old, int) else [*others, 1, symbolic.symbol("other")])
    x.type = Tensor(x.type.dtype, tuple(shape))
    return f"size {axis} of input {x.name}: {old} -> {shape[axis]}"


def edit_output(graph: Graph, draw: random.Random) -> str | None:
    """Make another value of the same type an output, under the name of the former one."""
    place = draw.randrange(len(graph.outputs))
    y = graph.outputs[place]
    candidates = [value for value in graph.values() if value is not y and value.type == y.type]
    if not candidates:
        return None
    z = draw.choice(candidates)
    if z in graph.outputs:
        other = graph.outputs.index(z)
        graph.outputs[place], graph.outputs[other] = z, y
    else:
        graph.outputs[place] = z
    y.name, z.name = z.name, y.name
    return f"output {z.name} is {y.name}"


MODEL_EDITS: dict[str, Edit] = {**EDITS, "size": edit_size, "output": edit_output}


# Edits of certificates: each changes the data and describes the change, or returns None where there is no place for it


def _parts_of(data: Data) -> list[list[Any]]:
    return [part for section in data["derivation"]["steps"] for step in section for part in step]


def delete_step(data: Data, draw: random.Random) -> str | None:
    section = draw.choice(data["derivation"]["steps"])
    return f"step deleted: {section.pop(draw.randrange(len(section)))}"[:80] if section else None


def swap_steps(data: Data, draw: random.Random) -> str | None:
    section = draw.choice(data["derivation"]["steps"])
    if len(section) < 2:
        return None
    first, second = draw.sample(range(len(section)), 2)
    section[first], section[second] = section[second], section[first]
    return f"steps {first} and {second} exchanged"


def change_term(data: Data, draw: random.Random) -> str | None:
    """Make an operand or a result of an application another term, or exchange two operands."""
    terms = data["derivation"]["terms"]
    rows = [numbers for part in _parts_of(data) for numbers in part[1:]] + [row[3] for row in terms if row[0] == "operator"]
    rows = [numbers for numbers in rows if numbers]
    if not rows:
        return None
    numbers = draw.choice(rows)
    place, old = draw.randrange(len(numbers)), list(numbers)
    if len(numbers) > 1 and draw.random() < 0.5:
        other = draw.randrange(len(numbers))
        numbers[place], numbers[other] = numbers[other], numbers[place]
    else:
        numbers[place] = draw.randrange(len(terms))
    return f"terms {old} -> {numbers}" if old != numbers else None


def change_link(data: Data, draw: random.Random) -> str | None:
    """Pair an exact term with another one over the real numbers."""
    links = data["derivation"]["links"]
    if not links:
        return None
    row, old = draw.choice(links), None
    old, row[1] = row[1], draw.choice(links)[1]
    return f"link of {row[0]}: {old} -> {row[1]}" if old != row[1] else None


def change_number(text: str, draw: random.Random) -> str:
    """Change a number or a truth value in a text."""
    places = list(re.finditer(r"(?<![\w.])-?\d+(\.\d+)?(e[-+]?\d+)?(?![\w.])|true|false", text))
    if not places:
        return text
    place = draw.choice(places)
    word = place[0]
    if word in ("true", "false"):
        new = "false" if word == "true" else "true"
    elif "." in word or "e" in word:
        new = repr(float(word) * 1.5 + 0.25)
    else:
        new = str(int(word) + draw.choice((-1, 1, 2)))
    return text[: place.start()] + new + text[place.end() :]


def change_operator(data: Data, draw: random.Random) -> str | None:
    """Change a number of an operator, everywhere or in one application, or make it another operator there."""
    operators = data["derivation"]["operators"]
    rows = _parts_of(data) + [row[2:] for row in data["derivation"]["terms"] if row[0] == "operator"]
    if not operators or not rows:
        return None
    place = draw.randrange(len(operators))
    old, new = operators[place], change_number(operators[place], draw)
    if draw.random() < 0.5:
        operators[place] = new
        return f"{old} -> {new}" if old != new else None
    number = draw.choice(range(len(operators)))
    row = draw.choice(_parts_of(data) or rows)
    if operators[number] == operators[row[0]]:
        return None
    old, row[0] = operators[row[0]], number
    return f"{old} -> {operators[number]} once"


def change_type(data: Data, draw: random.Random) -> str | None:
    """Change a size or the element type of a term."""
    terms = data["derivation"]["terms"]
    row = draw.choice(terms)
    place = 2 if row[0] == "input" else 1
    old = row[place]
    if draw.random() < 0.3:
        row[place] = re.sub(r"^\w+", draw.choice(("f32", "f16", "i64", "i32", "u8", "boolean", "f64")), old)
    elif draw.random() < 0.5:
        row[place] = change_number(old, draw)
    else:
        row[place] = draw.choice(terms)[place] if row[0] != "input" else re.sub(r"\b[a-z]\w*(?=[],])", "q", old)
    return f"type {old} -> {row[place]}" if old != row[place] else None


def change_constant(data: Data, draw: random.Random) -> str | None:
    rows = [row for row in data["derivation"]["terms"] if row[0] in ("constant", "integers") and len(row) > 2]
    if not rows:
        return None
    row = draw.choice(rows)
    old = copy.copy(row[-1])
    if row[0] == "integers":
        row[2] = [change_number(each, draw) if draw.random() < 0.5 else each for each in row[2]]
    elif len(row) == 3:
        head, _, tail = row[2].partition("]")
        row[2] = f"{head}]{change_number(tail, draw)}"
    else:
        row[2:] = draw.choice(rows)[2:]
    return f"constant {old} -> {row[-1]}" if old != row[-1] else None


def change_verdict(data: Data, draw: random.Random) -> str | None:
    old = data["verdict"]
    data["verdict"] = "real" if old == "bits" else "bits"
    sections = data["derivation"]["steps"]
    if draw.random() < 0.5:
        data["derivation"]["steps"] = [*sections, []][:2] if old == "bits" else sections[:1]
    return f"verdict {old} -> {data['verdict']}"


def change_conditions(data: Data, draw: random.Random) -> str | None:
    names = sorted({name for row in data["derivation"]["terms"] for name in re.findall(r"\b[a-z]\w*(?=[],])", str(row[-1]))})
    sizes: list[dict[str, int]] = [{}, {}]
    draw.choice(sizes)[draw.choice(names or ["n"])] = draw.choice((0, 1, 2, 4))
    rounded = {"k": ["k", False, 1e30]} if draw.random() < 0.2 else {}
    data["conditions"] = draw.choice(
        [{"sizes": sizes}, {"states": [{}, {"v": ["x", "y"]}]}, {"sizes": sizes, "rounded": rounded}]
    )
    return f"conditions {data['conditions']}"


def change_field(data: Data, draw: random.Random) -> str | None:
    """Change a field that says nothing of a step: the version, the matched values, or the digests of the texts."""
    kind = draw.choice(("version", "matching", "texts"))
    if kind == "texts":
        data["derivation"]["texts"].reverse()
    else:
        data[kind] = draw.choice((0, {}, None, float("nan"), [["x", "y"]]))
    return f"{kind} changed"


CERTIFICATE_EDITS: dict[str, Callable[[Data, random.Random], str | None]] = {
    "step deleted": delete_step,
    "steps exchanged": swap_steps,
    "term": change_term,
    "link": change_link,
    "operator": change_operator,
    "type": change_type,
    "constant": change_constant,
    "verdict": change_verdict,
    "conditions": change_conditions,
    "field": change_field,
}


# Pairs


class Pair:
    """Pair has two equal models in text form in a folder, with the certificate that dovetail_check accepts."""

    def __init__(self, name: str, models: tuple[Model, Model], certificate: Data, folder: Path) -> None:
        self.name, self.certificate, self.folder = name, certificate, folder
        self.models = models
        self.is_small = sum(len(model.graph.nodes) for model in models) <= MAX_FORGED


def read_pair(name: str, models: tuple[Model, Model], folder: Path, seconds: float) -> Pair | str:
    """Return a pair, or the reason why it is left out."""
    for model, file in zip(models, FILES, strict=True):
        dovetail.save(model, folder / file)
    proof = dovetail.prove(folder / FILES[0], folder / FILES[1], real=True)
    if not proof.is_proved or (certificate := proof.certificate())["derivation"] is None:
        return f"{name}: no steps ({proof.verdict})"
    start = perf_counter()
    try:
        dovetail_check.check(folder / FILES[0], folder / FILES[1], certificate)
    except dovetail_check.Refused as error:
        return f"{name}: {error}"[:160]
    if perf_counter() - start > seconds:
        return f"{name}: a check takes more than {seconds} s"
    texts = dovetail.load(folder / FILES[0]), dovetail.load(folder / FILES[1])
    return Pair(name, texts, json.loads(json.dumps(certificate)), folder)


def pairs_of_laws() -> Iterator[tuple[str, tuple[Model, Model]]]:
    sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "tests")]
    # Deferred because the tests are no part of the package.
    from test_checked_laws import PAIRS  # type: ignore[import-not-found,unused-ignore]

    for name, expressions in PAIRS.items():
        models = []
        for expression in expressions:
            with dovetail.Builder() as b:
                b.output("z", expression(b, *(b.input(each, "f32", ("n", 3)) for each in "xy")))
            models.append(b.model)
        yield name, (models[0], models[1])


def pairs_of_corpus(folder: Path, megabytes: float, work: Path) -> Iterator[tuple[str, tuple[Model, Model]]]:
    for path in sorted([*folder.glob("*.onnx"), *folder.glob("*.xml")]):
        weights = path.with_suffix(".bin") if path.suffix == ".xml" else path
        if weights.exists() and weights.stat().st_size > megabytes * 1e6:
            continue
        try:
            for kind, target in variants(path, {"roundtrip", "older", "newer", "simplify", "convert"}, work):
                yield f"{path.name} {kind}", (dovetail.load(path), dovetail.load(target))
        except DovetailError as error:
            print(f"left out: {path.name}: [{error.code}]", file=sys.stderr)


# Mutants


class Mutant:
    """Mutant has two texts in a folder and a certificate, one or more of which were edited."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair, self.folder = pair, folder
        self.certificate = copy.deepcopy(pair.certificate)
        self.edits: list[str] = []
        for file in pair.folder.glob("*.*"):
            if file.suffix in (".dt", ".safetensors"):
                (folder / file.name).write_bytes(file.read_bytes())

    def texts(self) -> tuple[str, str]:
        return (self.folder / FILES[0]).read_text(), (self.folder / FILES[1]).read_text()

    def edit_model(self, draw: random.Random) -> str | None:
        """Edit one model, and write its text. Returns the kind of the edit."""
        side = draw.randrange(2)
        for _ in range(TRIES):
            model, kind = copy_model(self.pair.models[side]), draw.choice(list(MODEL_EDITS))
            try:
                graph = model.graph if kind in ("size", "output") else draw.choice(list(graphs_of(model.graph)))
                text = MODEL_EDITS[kind](graph, draw)
                if text is None:
                    continue
                dovetail.save(infer_again(model), self.folder / FILES[side])
                dovetail.load(self.folder / FILES[side])
            except (DovetailError, ValueError, TypeError, OverflowError, IndexError):
                continue
            self.edits.append(f"{FILES[side]}: {text}")
            self.certificate["derivation"]["texts"] = list(map(digest_of_text, self.texts()))
            return kind
        return None

    def edit_certificate(self, draw: random.Random) -> str | None:
        for _ in range(TRIES):
            kind, data = draw.choice(list(CERTIFICATE_EDITS)), copy.deepcopy(self.certificate)
            text = CERTIFICATE_EDITS[kind](data, draw)
            if text is not None:
                self.certificate = data
                self.edits.append(text)
                return kind
        return None

    def follow_models(self, draw: random.Random) -> None:
        """Change operators, types and operands of the certificate as those of the lines that were edited."""
        derivation = self.certificate["derivation"]
        for file, text in zip(FILES, self.texts(), strict=True):
            before, after = (_nodes_of(each) for each in ((self.pair.folder / file).read_text(), text))
            for name in before.keys() & after.keys():
                (old, old_type, old_operands), (new, new_type, operands) = before[name], after[name]
                if old_type != new_type:
                    for row in derivation["terms"]:
                        place = 2 if row[0] == "input" else 1
                        if row[place] == old_type and (row[0] != "input" or row[1] == name):
                            row[place] = new_type
                if old != new and old in derivation["operators"]:
                    derivation["operators"][derivation["operators"].index(old)] = new
                if operands != old_operands and sorted(map(str, operands)) == sorted(map(str, old_operands)):
                    places = [old_operands.index(each) for each in operands]
                    rows = _parts_of(self.certificate) + [row[2:] for row in derivation["terms"] if row[0] == "operator"]
                    rows = [row for row in rows if derivation["operators"][row[0]] == new and len(row[1]) == len(places)]
                    for row in rows if draw.random() < 0.5 else draw.sample(rows, min(1, len(rows))):
                        row[1] = [row[1][place] for place in places]

    def forge(self) -> bool:
        """Claim the outputs equal. Returns whether the models have a text for it."""
        stored = [self.folder / file.replace(".dt", ".safetensors") for file in FILES]
        weights = [read_weights(path) if path.exists() else {} for path in stored]
        try:
            self.certificate = forge_equal_outputs(self.texts(), (weights[0], weights[1]), self.certificate["verdict"])
        except (TypeError, KeyError, ValueError):
            return False
        return True

    def check(self) -> dovetail_check.Verdict | None:
        try:
            return dovetail_check.check(self.folder / FILES[0], self.folder / FILES[1], self.certificate)
        except dovetail_check.Refused:
            return None


def _nodes_of(text: str) -> dict[str, tuple[str, str, list[str | None]]]:
    """Return the operator, the type and the operands of each node by its name; those of an input are empty."""
    found = {}
    symbols = Symbols()
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s+(?:input )?([\w./$]+): (\w+\[[^]]*\])(?: = (.*))?$", line)
        if match is None:
            continue
        name, type_, value = match.groups()
        try:
            op, operands = Line(value, number, symbols.symbol, {}).operator() if value else (None, [])
            found[name] = ("" if op is None else write_operator(op), type_, operands)
        except (ValueError, TypeError, KeyError):
            found[name] = "", type_, []
    return found


# Judgement


def inputs_of(model: Model, verdict: dovetail_check.Verdict) -> Iterator[Arrays]:
    """Yield seeded inputs of several sizes, and for the verdict "bits" also special elements."""
    fixed = verdict.conditions.sizes[0]
    open_sizes = sorted({str(each) for x in model.inputs if isinstance(x.type, Tensor) for each in x.type.shape or ()})
    names = [name for name in open_sizes if re.fullmatch(r"[A-Za-z_]\w*", name) and name not in fixed]
    for seed in range(6):
        sizes = {**fixed, **({} if seed == 0 else {name: (seed + place) % 5 for place, name in enumerate(names)})}
        try:
            inputs = random_inputs(model, seed=seed, sizes=sizes)
        except DovetailError:
            continue
        yield inputs
        if verdict.kind == "bits":
            draw = np.random.default_rng(seed)
            special = {}
            for name, x in inputs.items():
                chosen = draw.choice(SPECIAL, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x
                special[name] = np.where(draw.random(x.shape) < 0.5, chosen, x) if x.dtype.kind == "f" else x
            yield special


def takes(model: Model, inputs: Arrays) -> bool:
    """Return whether inputs have the sizes of a model, in which equal symbols are equal sizes."""
    pairs = [
        (str(extent), size)
        for x in model.inputs
        if isinstance(x.type, Tensor) and x.type.shape is not None
        for extent, size in zip(x.type.shape, inputs[x.name].shape, strict=True)
    ]
    sizes = dict(pairs)
    return all(size == (int(name) if name.isdigit() else sizes[name]) for name, size in pairs)


def run_model(model: Model, inputs: Arrays) -> Arrays:
    outputs = flatten_outputs(run_row_major(model, inputs))
    return {name: np.asarray(array) for name, array in outputs.items() if name not in random_outputs(model)}


def judge(mutant: Mutant, verdict: dovetail_check.Verdict) -> str:
    """Return "equal", "different", or "not run" for an accepted mutant."""
    try:
        first, second = (dovetail.load(mutant.folder / file) for file in FILES)
    except DovetailError:
        return "not run"
    runs = 0
    for inputs in inputs_of(first, verdict):
        # A certificate says nothing of inputs that one of the models does not take.
        if not all(takes(model, inputs) for model in (first, second)):
            continue
        try:
            with np.errstate(all="ignore"):
                results = [run_model(model, inputs) for model in (first, second)]
        except (DovetailError, ValueError, IndexError, KeyError, ZeroDivisionError):
            continue
        runs += 1
        if verdict.kind == "bits" and not have_equal_bits(*results):
            return "different"
        if verdict.kind == "real" and difference(*results) > TELLING:
            return "different"
    return "equal" if runs else "not run"


def make_mutant(pair: Pair, kind: str, draw: random.Random, folder: Path) -> tuple[Mutant, str] | None:
    """Return a mutant and the kind of its edit; None where no edit of those tried is possible."""
    mutant = Mutant(pair, folder)
    if kind == "certificate":
        edit = mutant.edit_certificate(draw)
        return None if edit is None else (mutant, edit)
    edit = mutant.edit_model(draw)
    if edit is None or (kind == "forged" and not mutant.forge()):
        return None
    if kind == "both":
        mutant.follow_models(draw)
        if draw.random() < 0.5:
            mutant.edit_certificate(draw)
    return mutant, edit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="without a folder, the laws alone")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=float, default=0.3, help="the largest size of a model's weights")
    parser.add_argument("--seconds", type=float, default=0.5, help="the longest time of a check of a pair")
    parser.add_argument("--json", action="store_true", help="print each mutant")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        work = Path(root)
        sources = [*pairs_of_laws()]
        (work / "variants").mkdir()
        pairs: list[Pair] = []
        corpus = pairs_of_corpus(options.folder, options.megabytes, work / "variants") if options.folder else iter(())
        for name, models in (pair for each in (sources, corpus) for pair in each):
            (folder := work / f"pair{len(pairs)}").mkdir(exist_ok=True)
            try:
                found = read_pair(name, models, folder, options.seconds)
            except DovetailError as error:
                found = f"{name}: [{error.code}]"
            if isinstance(found, str):
                print(f"left out: {found}", file=sys.stderr)
            else:
                pairs.append(found)
        sys.exit(search(pairs, options, work))


def search(pairs: list[Pair], options: argparse.Namespace, work: Path) -> int:
    """Check mutants until their number is that of the options; print the counts, and return the exit code."""
    counts: Counter[tuple[str, str]] = Counter()
    results: Counter[tuple[str, str]] = Counter()
    start, done, number = perf_counter(), 0, 0
    # An interrupted search has counts, too.
    with contextlib.suppress(KeyboardInterrupt):
        while done < options.count and number < options.count * 4:
            draw = random.Random(f"{options.seed}:{number}")
            kind, number = KINDS[number % len(KINDS)], number + 1
            pair = draw.choice([each for each in pairs if each.is_small] if kind == "forged" else pairs)
            with tempfile.TemporaryDirectory(dir=work) as folder:
                made = make_mutant(pair, kind, draw, Path(folder))
                if made is None:
                    continue
                mutant, edit = made
                verdict = mutant.check()
                result = "refused" if verdict is None else judge(mutant, verdict)
                if result == "different" or options.json:
                    row = {"number": number - 1, "pair": pair.name, "kind": kind, "edits": mutant.edits, "result": result}
                    print(json.dumps(row), flush=True)
                    if result == "different":
                        print(json.dumps([*mutant.texts(), mutant.certificate])[:20000], file=sys.stderr, flush=True)
            done += 1
            counts[kind, edit] += 1
            results[kind, result] += 1
            if done % 250 == 0:
                print(f"{done} mutants in {perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"{done} mutants of {len(pairs)} pairs, in {perf_counter() - start:.0f} s")
    for kind in KINDS:
        found = {result: count for (each, result), count in sorted(results.items()) if each == kind}
        edits = ", ".join(f"{count} {edit}" for (each, edit), count in sorted(counts.items()) if each == kind)
        print(f"{kind}: {', '.join(f'{count} {result}' for result, count in found.items())} ({edits})")
    false = sum(count for (_, result), count in results.items() if result == "different")
    print(f"false acceptances: {false}")
    return 1 if false else 0


if __name__ == "__main__":
    main()
