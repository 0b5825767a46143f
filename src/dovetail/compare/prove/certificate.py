"""Certificates of equality: JSON data with which a proof is checked again without searching."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from dovetail import __version__
from dovetail.compare.prove.conditions import Conditions, PreparedModels
from dovetail.compare.prove.symbols import interface_differences
from dovetail.errors import DovetailError, FormatError, RuleError
from dovetail.ir.graph import Graph, Model, Value
from dovetail.ir.limits import counting
from dovetail.ir.op import bodies
from dovetail.ir.suggestions import check_keywords
from dovetail.laws.terms.keys import digest
from dovetail.storage.files import read_bytes

if TYPE_CHECKING:
    from dovetail.compare.prove.equality_proof import EqualityProof
    from dovetail.compare.prove.model_terms import Numbered

KIND = "dovetail equality certificate"
VERSION = 3
_BLOCK = 1 << 20
MAX_BYTES = 1 << 28
"""Maximum size in bytes of the file of a certificate."""
_FIELDS = frozenset(
    ("kind", "version", "dovetail", "verdict", "rewrites", "conditions", "files", "matching", "derivation", "digest")
)


def write_certificate(proof: EqualityProof) -> dict[str, Any]:
    """Return the certificate of a proof that two models are equal, as a dict that JSON can represent.

    Raises RuleError [argument.conflict] if nothing is proved, [certificate.files] for a model that is not from a file.
    """
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.model_terms import number_terms
    from dovetail.compare.prove.real_terms import real_terms

    if not proof.is_proved or proof.models is None:
        raise RuleError("argument.conflict", f"the verdict of a certificate must be 'bits' or 'real', got {proof.verdict!r}")
    files = [_file_entry(model) for model in proof.models]
    prepared = proof.conditions.prepare(proof.models)
    numbered = number_terms(prepared.models, fit_sizes=proof.conditions.fit_sizes)
    matching = _matching(prepared.models, numbered, proof.verdict, proof.rewrites)
    rewrites = proof.rewrites
    if matching is None:
        # A rewrite outside the paths of the proof may enable a rewrite on them: the certificate lists all rewrites.
        rewrites = sorted(frozenset().union(*real_terms(numbered).rewrites.values()))
        matching = _matching(prepared.models, numbered, proof.verdict, rewrites)
    if matching is None:
        raise RuleError("argument.conflict", "a proof of models whose states differ has no certificate")
    if proof.verdict == "real":
        rewrites = _without_decompositions(prepared.models, numbered, rewrites)
        matching = _matching(prepared.models, numbered, proof.verdict, rewrites)
    content: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "dovetail": __version__,
        "verdict": proof.verdict,
        "rewrites": rewrites,
        "conditions": proof.conditions.as_data(numbered.interface.sizes),
        "files": files,
        "matching": matching,
        "derivation": _derivation(proof, prepared, rewrites),
    }
    return {**content, "digest": digest_of(content)}


def _derivation(proof: EqualityProof, prepared: PreparedModels, rewrites: list[str]) -> dict[str, Any] | None:
    """Return the steps of a proof; None for models with operators whose steps are not recorded."""
    # Deferred for start-up time.
    from dovetail.compare.prove.derivation import derive

    assert proof.models is not None
    try:
        return derive(proof.models, prepared, proof.verdict, rewrites, fit_sizes=proof.conditions.fit_sizes)
    except RuleError:
        return None


@check_keywords
def check_certificate(certificate: Mapping[str, Any], a: Model | str | PathLike[str], b: Model | str | PathLike[str]) -> None:
    """Check a certificate against two files: derive the equality again by the listed rewrites, without searching.

    Raises FormatError [certificate.format] for other data, a digest that does not fit its content, and another version;
    [certificate.files] for other files; [certificate.proof] where the equality does not follow, or the matched values differ;
    and the errors of :func:`load`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Negative(b.Negative(b.input("x", "f32", (2,)))))
    >>> dovetail.save(b.model, "model.onnx"); dovetail.save(dovetail.simplify(b.model), "small.onnx")
    >>> dovetail.check_certificate(dovetail.prove("model.onnx", "small.onnx").certificate(), "model.onnx", "small.onnx")
    """
    # Deferred for start-up time.
    from dovetail.formats import load

    content = _checked_content(certificate)
    models = tuple(each if isinstance(each, Model) else load(each) for each in (a, b))
    for entry, model in zip(content["files"], models, strict=True):
        if entry != _file_entry(model):
            raise FormatError(
                "certificate.files", "the file must be the file for which the certificate was made", file=model.file
            )
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.model_terms import number_terms

    conditions = Conditions.from_data(content["conditions"])
    with counting(models[0].limits):
        prepared = conditions.prepare((models[0], models[1]))
        numbered = number_terms(prepared.models, fit_sizes=conditions.fit_sizes)
        if conditions.as_data(numbered.interface.sizes) != content["conditions"]:
            raise FormatError("certificate.proof", "the conditions must be those of the certificate")
        matching = _matching(prepared.models, numbered, content["verdict"], content["rewrites"])
    if matching is None:
        raise FormatError("certificate.proof", "the equality does not follow from the rewrites that the certificate lists")
    if matching != content["matching"]:
        raise FormatError("certificate.proof", "the matched values must be those of the certificate")


def read_certificate(path: str | PathLike[str]) -> Any:
    """Read the JSON data of a certificate. Raises FormatError [certificate.format] for a file of other content."""
    try:
        return json.loads(read_bytes(path, MAX_BYTES))
    except DovetailError as error:
        code = "certificate.format" if error.code == "file.size" else "certificate.files"
        raise FormatError(code, f"the certificate cannot be read: {error.message}", file=os.fspath(path)) from None
    except (ValueError, RecursionError) as error:
        raise FormatError("certificate.format", f"the certificate must be JSON data: {error}", file=os.fspath(path)) from None


def _checked_content(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a certificate without its digest, after the checks that need no files."""
    if not isinstance(certificate, Mapping) or set(certificate) != _FIELDS or certificate["kind"] != KIND:
        raise FormatError("certificate.format", "the data must be an equality certificate of dovetail")
    content = {name: value for name, value in certificate.items() if name != "digest"}
    if certificate["digest"] != digest_of(content):
        raise FormatError("certificate.format", "the digest of the certificate must be the digest of its content")
    if certificate["version"] != VERSION or certificate["dovetail"] != __version__:
        raise FormatError(
            "certificate.format", f"the certificate must be of dovetail {__version__}, got {str(certificate['dovetail'])[:40]!r}"
        )
    rewrites, files = certificate["rewrites"], certificate["files"]
    is_valid = (
        certificate["verdict"] in ("bits", "real")
        and isinstance(rewrites, list)
        and all(isinstance(name, str) for name in rewrites)
        and isinstance(files, list)
        and len(files) == 2
    )
    if not is_valid:
        raise FormatError("certificate.format", "the data must be an equality certificate of dovetail")
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError("certificate.format", f"the certificate must be JSON data: {error}") from None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _file_entry(model: Model) -> dict[str, str]:
    """Return the hash of a model's file, and the hash of all constants, which may be stored in other files."""
    if model.file is None:
        raise RuleError("certificate.files", "a certificate needs models that were loaded from files")
    code = hashlib.sha256()
    try:
        with open(model.file, "rb") as file:
            while block := file.read(_BLOCK):
                code.update(block)
    except OSError as error:
        raise FormatError("certificate.files", f"the model file cannot be read: {error.strerror}", file=model.file) from None
    weights = hashlib.sha256()
    _hash_constants(model.graph, weights)
    return {"sha256": code.hexdigest(), "weights": weights.hexdigest()}


def _hash_constants(graph: Graph, code: Any) -> None:
    for node in graph.nodes:
        data = node.outputs[0].constant if node.outputs else None
        if data is not None:
            code.update(f"{node.outputs[0].type}:".encode("utf-8", "surrogatepass") + digest(data))
        for _, body in bodies(node.op):
            _hash_constants(body, code)


def _matching(models: tuple[Model, Model], numbered: Numbered, verdict: str, rewrites: list[str]) -> dict[str, Any] | None:
    """Return the matched values of two models; None where their outputs are not equal with these rewrites."""
    # Deferred for start-up time: the rules import the operators that they rewrite.
    from dovetail.compare.prove.real_terms import real_terms

    terms = numbered.terms
    if verdict == "real":
        terms = real_terms(numbered, allowed=frozenset(rewrites)).terms
    outputs = {value.name: value for value in models[1].outputs}
    if interface_differences(models, numbered.interface):
        return None
    if not all(terms[0][id(value)] is terms[1][id(outputs[value.name])] for value in models[0].outputs):
        return None
    return _pairs(models, terms)


def _pairs(models: tuple[Model, Model], terms: list[dict[int, Value]]) -> dict[str, Any]:
    """Return the pairs of equal values by name, with the numbers of their terms."""
    numbers: dict[int, int] = {}
    names: dict[int, str] = {}
    for value in models[0].graph.values():
        term = id(terms[0][id(value)])
        numbers.setdefault(term, len(numbers))
        names.setdefault(term, value.name)
    rows = []
    for value in models[1].graph.values():
        term = id(terms[1][id(value)])
        if term in numbers:
            rows.append([names[term], value.name, numbers[term]])
    text = json.dumps(rows, separators=(",", ":"))
    return {"values": rows, "sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def _without_decompositions(models: tuple[Model, Model], numbered: Numbered, rewrites: list[str]) -> list[str]:
    """Return the rewrites without decompositions that the proof does not need: an operator of both models stays as it is."""
    from dovetail.compare.prove.real_terms import real_terms
    from dovetail.laws.table import ONE_FORM, ONE_INDEX, PARTS, WITHOUT_NAN

    endings = tuple(name.removeprefix("{}") for name in (ONE_FORM, ONE_INDEX, PARTS, WITHOUT_NAN))
    outputs = {value.name: value for value in models[1].outputs}

    def is_proved(names: list[str]) -> bool:
        first, second = real_terms(numbered, allowed=frozenset(names)).terms
        return all(first[id(value)] is second[id(outputs[value.name])] for value in models[0].outputs)

    composed = [name for name in rewrites if name.endswith(endings)]
    for names in ([composed] if len(composed) > 1 else []) + [[name] for name in composed]:
        kept = [name for name in rewrites if name not in names]
        if len(kept) < len(rewrites) and is_proved(kept):
            rewrites = kept
    return rewrites
