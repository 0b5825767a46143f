"""Command ``dovetail convert`` converts a model between formats."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any, BinaryIO

import click
import numpy as np

from dovetail.cli import options
from dovetail.cli.output import STREAM, differences, load, loading, narrate, progress, say_json, table, target_of
from dovetail.cli.proofs import as_data, prove_conversion, verdict_text
from dovetail.cli.transformation import FileOptions, rows_as_json, saving, split_pairs
from dovetail.compare.prove.conditions import Conditions
from dovetail.errors import DovetailError


def _command_that_finds_it(
    source: str,
    target: str,
    found: Any,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    tolerance: float | None,
) -> str:
    """Return the command that compares every value in the runtime in which an output differs."""
    from dovetail.compare.values.engines import ENGINES

    failed = next((each for each in found.comparisons if not all(row.agrees for row in each.rows)), found.comparisons[0])
    # The text of a runtime has its name and version. A name that is not in ENGINES is dovetail's native engine.
    engine, reference = (
        name if (name := text.split()[0]) in ENGINES else default
        for text, default in ((failed.runtime, "native"), (found.reference, "interpreter"))
    )
    words = ["dovetail", "compare", source, "--engines", engine, "--reference", reference]
    words += ["--with", target] if failed.file == target else []
    for flag, texts in (("--input", inputs), ("--dim", dims)):
        words += [word for text in texts for word in (flag, text)]
    words += ["--seed", str(seed)] if seed else []
    words += ["--tolerance", f"{tolerance:g}"] if tolerance is not None else []
    return shlex.join(words)


@click.command()
@options.source
@click.argument("target", type=click.Path())
@saving
@click.option("--verify", is_flag=True, help="Run both, and dovetail; print the largest difference per output.")
@click.option("--stateful", is_flag=True, help="Turn past inputs and present outputs into states (IR: ReadValue, Assign).")
@click.option("--stateless", is_flag=True, help="Turn states into past inputs and present outputs.")
@click.option(
    "--state", "pairs", multiple=True, metavar="PAST=PRESENT", help="A state for --stateful [found by names and types]."
)
@click.option(
    "--encoding",
    type=click.Choice(("qdq", "fakequantize", "matmulnbits", "compressed")),
    help="The encoding of quantized weights and activations [that of the target's format, where it is exact].",
)
@click.option("--prove", is_flag=True, help="Prove the target equal to the source for all inputs and sizes, without running it.")
@options.certificate_option(
    help="With --prove, --stateful or --stateless: write what proves the target equal (.json), for dovetail-check."
)
@options.tolerance
@options.input_option(help="Inputs for --verify; random ones for the rest.")
@options.dims
@options.seed
@loading
def convert(
    source: str,
    target: str,
    file_options: FileOptions,
    verify: bool,
    stateful: bool,
    stateless: bool,
    pairs: tuple[str, ...],
    encoding: str | None,
    prove: bool,
    certificate: str | None,
    tolerance: float | None,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Convert SOURCE to TARGET; the suffixes (.onnx, .xml) name the formats. - is stdin, or ONNX on stdout.

    Operators that the target cannot express exactly are refused, and all of them are listed. With --verify each file runs in the
    runtime of its format (onnxruntime, openvino) if that is installed, and SOURCE in dovetail too. With --prove the target is
    proved equal first. After random inputs, inputs with NaN, infinities, ties, extremes and empty tensors follow. Exit code 1:
    an output differs or cannot be compared, or the runtime of TARGET's format cannot load TARGET; without --verify also: TARGET
    is not proved equal.

    --encoding writes quantized weights and activations as QuantizeLinear and DequantizeLinear (qdq), FakeQuantize, MatMulNBits,
    or OpenVINO's compressed constants, with the same elements, or refuses them. Without it an ONNX target of an IR gets
    DequantizeLinear for weights, where the elements stay the same.

    With --stateful or --stateless three steps from empty states are proved equal for all sizes, or run on random inputs where no
    proof is found.
    """
    from dovetail.formats import save
    from dovetail.formats.model_source import format_of

    is_onnx = target == STREAM or format_of(target) == "onnx"
    options = file_options.of(target)
    if STREAM in (source, target) and (verify or prove):
        option = "--verify runs both files in their runtimes" if verify else "--prove loads both files"
        raise click.UsageError(f"{option} and needs names for both, not -")
    if certificate and not (prove or stateful or stateless):
        raise click.UsageError("--certificate needs --prove, --stateful or --stateless")
    if certificate and STREAM in (source, target):
        raise click.UsageError("--certificate needs names for both files, not -")
    to = target_of(target, as_json)
    if stateful or stateless or pairs:
        if pairs and not stateful:
            raise click.UsageError("--state needs --stateful")
        if stateful and stateless:
            raise click.UsageError("--stateful and --stateless exclude each other")
        if stateful and is_onnx:
            raise click.UsageError(
                "--stateful needs an IR target (.xml): an ONNX model has inputs and outputs in place of states"
            )
        if encoding:
            raise click.UsageError("--encoding excludes --stateful and --stateless")
        if verify or prove or inputs or dims or tolerance is not None:
            option = "--stateful" if stateful else "--stateless"
            raise click.UsageError(f"{option} compares three steps itself, and excludes the options of --verify and --prove")
        return _convert_states(
            source,
            target,
            to,
            options,
            split_pairs(pairs, "--state"),
            stateful=stateful,
            seed=seed,
            certificate=certificate,
            as_json=as_json,
        )
    if not verify and (inputs or dims or tolerance is not None):
        raise click.UsageError("--input, --dim and --tolerance need --verify")
    model = load(source)
    written = model
    if encoding or (is_onnx and model.format == "openvino"):
        from dovetail.passes.encodings import change_encoding

        written = change_encoding(model, encoding or "qdq", keeps_others=not encoding)
    with progress(f"writing {target}"):
        save(written, to, **options)
    narrate(f"wrote {target}")
    proof = None
    if prove:
        with progress(f"proving {source} and {target} equal"):
            proof = prove_conversion(model, load(target), is_alone=not verify, certificate=certificate)
    proved = {} if proof is None else {"proof": as_data(proof)}
    if not verify:
        if as_json:
            say_json("convert", source=source, target=target, **proved)
        return 0 if proof is None or proof.is_proved else 1
    from dovetail.cli.arrays import call_on_inputs
    from dovetail.compare.arrays import TOLERANCE
    from dovetail.compare.verification.conversion import random_outputs, verify_conversion

    drawn = random_outputs(model)
    # For an index out of range OpenVINO returns zero and ONNX reports an error, so sizes that run in ONNX suit both.
    strict = load(target) if is_onnx else model
    with progress(f"running {source} and {target}"):
        arrays, random, found = call_on_inputs(
            model,
            inputs,
            seed,
            dims,
            lambda arrays, varied: verify_conversion(model, source, target, arrays, tolerance, drawn, varied),
            lambda found: found.agrees,
            strict,
            distinct=True,
        )
    if random:
        shapes = ", ".join(f"{name} {list(np.shape(arrays[name]))}" for name in random)
        narrate(f"random inputs (seed {seed}): {shapes}")
    for note in found.notes:
        narrate(note)
    if drawn:
        narrate(f"outputs that depend on random numbers cannot be compared, but for type and shape: {', '.join(sorted(drawn))}")
    allowed = TOLERANCE if tolerance is None else tolerance
    narrate(f"compared with {source} in {found.reference}; tolerance {allowed:g} of the largest magnitude")
    if as_json:
        rows = [
            {**dataclasses.asdict(row), "file": each.file, "runtime": each.runtime}
            for each in found.comparisons
            for row in each.rows
        ]
        runtimes = [found.reference, *(each.runtime for each in found.comparisons)]
        say_json(
            "convert",
            source=source,
            target=target,
            agrees=found.agrees,
            tolerance=allowed,
            runtimes=runtimes,
            seed=seed,
            outputs=rows,
            **proved,
        )
    else:
        columns = ("output", "type", "max abs", "max rel", "allowed", "", "file", "run by")
        table(columns, [[*row, each.file, each.runtime] for each in found.comparisons for row in differences(each.rows)])
    if not found.agrees:
        narrate(f"where it begins: {_command_that_finds_it(source, target, found, inputs, dims, seed, tolerance)}")
    return 0 if found.agrees else 1


def _convert_states(
    source: str,
    target: str,
    to: str | BinaryIO,
    options: Mapping[str, Any],
    pairs: Mapping[str, str],
    *,
    stateful: bool,
    seed: int,
    certificate: str | None,
    as_json: bool,
) -> int:
    """Write SOURCE with states, or without, and compare both over several steps; return the exit code."""
    from dovetail.formats import save
    from dovetail.passes.stateful import STEPS, compare_steps, make_stateful, make_stateless, restore_states

    model = load(source)
    new = make_stateful(model, dict(pairs) or None) if stateful else make_stateless(model)
    with progress(f"writing {target}"):
        save(new, to, **options)
    narrate(f"wrote {target}; states: {', '.join(f'{state.input} -> {state.output}' for state in new.report)}")
    written = new if target == STREAM else load(target)
    data: dict[str, Any] = {"verdict": "open"}
    try:
        with progress(f"comparing {STEPS} steps of {source} and {target}"):
            found = (
                compare_steps(new, written, seed) if stateful else compare_steps(model, restore_states(written, new.report), seed)
            )
        text, code = verdict_text(found.verdict, found.rewrites), 0 if found.agrees else 1
        if found.rows:
            data["comparisons"] = rows_as_json(found.rows)
            text += f"; runs in both engines on random inputs {'agree' if found.agrees else 'differ'}"
        data |= {"verdict": found.verdict, "rewrites": found.rewrites}
    except DovetailError as error:
        text, code = f"{verdict_text('open')}, and cannot run on random inputs: {error.diagnostics[0].message}", 1
    narrate(f"{STEPS} steps from empty states: {text}")
    if certificate:
        ports = {state.variable: (state.input, state.output) for state in new.report}
        conditions = Conditions(states=({}, ports) if stateful else (ports, {}))
        with progress(f"proving each step of {source} and {target} equal"):
            prove_conversion(model, written, is_alone=False, certificate=certificate, conditions=conditions)
    if as_json:
        states = [{"variable": state.variable, "input": state.input, "output": state.output} for state in new.report]
        say_json("convert", source=source, target=target, states=states, steps=data)
    return code
