"""examples/generate.py: tokens of a decoder with caches are those of onnxruntime, which reads all tokens again for each one."""

from __future__ import annotations

import sys
from pathlib import Path

import generate
import language_models
import numpy as np
import pytest
import transformers

import dovetail
from dovetail.ir.host import native_core

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

PROMPT = [3, 141, 59, 26, 5]


def without_caches(path: Path, count: int) -> list[int]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    empty = {x.name: np.zeros((1, x.shape[1], 0, x.shape[3]), np.float32) for x in session.get_inputs()[1:]}
    ids = list(PROMPT)
    for _ in range(count):
        ids.append(int(np.argmax(session.run(["logits"], {"input_ids": np.array([ids]), **empty})[0][0, -1])))
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("form", [*transformers.ATTENTION, "states"])
def test_the_likeliest_tokens(form: str, tmp_path: Path) -> None:
    plain = transformers.llama()
    dovetail.save(plain, tmp_path / "decoder.onnx")
    if form == "states":
        dovetail.save(dovetail.make_stateful(plain), tmp_path / "decoder.xml")
        model = dovetail.load(tmp_path / "decoder.xml")
    else:
        model = transformers.llama(attention=form)
    decoder = generate.Decoder(model, threads=1)
    assert list(generate.generate(decoder, PROMPT, 24)) == without_caches(tmp_path / "decoder.onnx", 24)
    assert decoder.length == len(PROMPT) + 23
    # One plan for each of the first sizes, those tried for ranges, and one for all lengths.
    assert decoder.program.statistics.plans <= 12 and decoder.program.statistics.ranges == 1
    assert decoder.program.statistics.copied_cache_bytes == 0


def test_a_causal_table_makes_no_plan_for_each_step(tmp_path: Path) -> None:
    """GPT-2 slices its mask from a constant table."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "gpt2.onnx"
    path.write_bytes(language_models.gpt2(2, 32, 4, 200, past=3)[0].SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    caches = {item.name: np.zeros((1, 4, 0, 8), np.float32) for item in session.get_inputs()[1:]}
    decoder = generate.Decoder(dovetail.load(path), threads=1)
    for step, ids in enumerate([PROMPT, *([token] for token in range(40))]):
        plans = decoder.program.statistics.plans
        found = dict(zip(names, session.run(names, {"input_ids": np.array([ids]), **caches}), strict=True))
        np.testing.assert_allclose(decoder(ids), found["logits"][0, -1], rtol=1e-4, atol=1e-5)
        caches = {name: found[name.replace("past_key_values", "present")] for name in caches}
        assert step < 8 or decoder.program.statistics.plans == plans
    assert decoder.program.statistics.copied_cache_bytes == 0


def test_sampled_tokens_follow_their_probabilities() -> None:
    decoder = generate.Decoder(transformers.llama(1, 16, 2, 1, 16, 8), threads=1)
    scores = decoder(PROMPT[:1]).astype(np.float64)
    expected = np.exp(scores / 0.7) / np.exp(scores / 0.7).sum()
    drawn: list[int] = []
    for seed in range(200):
        decoder.reset()
        drawn += generate.generate(decoder, PROMPT[:1], 1, 0.7, seed)
    found = np.bincount(drawn, minlength=8) / len(drawn)
    # Four standard deviations of a frequency among 200.
    assert np.all(np.abs(found - expected) <= 4 * np.sqrt(0.25 / 200))


def test_the_example_runs_with_a_tokenizer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = generate.train_tokenizer()
    text = "Caches of 2,048 tokens: keys, values."
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    monkeypatch.setattr(sys, "argv", ["generate.py", text, "--tokens", "12", "--threads", "1"])
    generate.main()
    output = capsys.readouterr()
    assert output.out.startswith(text) and "0 bytes of caches copied" in output.err
    assert "past_key_values.0.key -> present.0.key" in output.err
