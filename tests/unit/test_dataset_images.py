"""Images as source and sink, with Pillow as the oracle."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import dovetail as dovetail_command
from dovetail.data.rows.image_files import ImageOptions, picture_name
from dovetail.data.rows.sinks import default_format, open_sink
from dovetail.data.rows.sources import open_source
from dovetail.errors import EngineError

image_module = pytest.importorskip("PIL.Image")


def pixels(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def test_images_of_all_levels_are_rows(tmp_path: Path) -> None:
    arrays = {}
    for number, name in enumerate(["b.png", "a.bmp", "class/c.PNG", "class/deep/d.tiff", "e.webp"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        arrays[name] = pixels(number, 4, 5, 3)
        image_module.fromarray(arrays[name]).save(tmp_path / name, **({"lossless": True} if name.endswith("webp") else {}))
    (tmp_path / "labels.csv").write_text("a,b")
    source = pickle.loads(pickle.dumps(open_source(tmp_path)))
    assert (source.kind, source.rows, source.selected, source.keep) == ("images", 5, ("image",), ("file",))
    block = source.read(0, 5)
    assert block.kept["file"].tolist() == sorted(arrays) and source.file_of(2) == "class/c.PNG"
    assert np.array_equal(block.columns["image"], np.stack([arrays[name] for name in sorted(arrays)]))
    assert block.columns["image"].dtype == np.uint8 and source.row_bytes == 60
    assert source.read(2, 2).rows.tolist() == [] and default_format("images") == "parquet"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    name = "x.tiff" if mode == "CMYK" else "x.png"
    image_module.fromarray(pixels(1, 6, 7, 3)).convert(mode).save(tmp_path / name)
    expected = np.asarray(image_module.open(tmp_path / name).convert("RGB"))
    assert np.array_equal(open_source(tmp_path).read(0, 1).columns["image"][0], expected)


def test_images_of_other_sizes_are_a_list(tmp_path: Path) -> None:
    for size in (2, 3):
        image_module.fromarray(pixels(size, size, 4, 3)).save(tmp_path / f"{size}.png")
    assert [image.shape for image in open_source(tmp_path).read(0, 2).columns["image"]] == [(2, 4, 3), (3, 4, 3)]
    options = ImageOptions(size=(5, 6))
    resized = open_source(tmp_path, images=options).read(0, 2).columns["image"]
    expected = image_module.open(tmp_path / "3.png").resize((6, 5), image_module.Resampling.BILINEAR)
    assert np.array_equal(resized[1], np.asarray(expected)) and resized.shape == (2, 5, 6, 3)


def test_options_scale_and_transpose(tmp_path: Path) -> None:
    array = pixels(0, 4, 4, 3)
    image_module.fromarray(array).save(tmp_path / "x.png")
    options = ImageOptions.for_shape(["N", 3, 8, 8], resize=True, scale=1 / 255, mean=[0.5, 0.4, 0.3], std=[0.2])
    assert options.size == (8, 8) and options.layout == "NCHW"
    values = open_source(tmp_path, images=options).read(0, 1).columns["image"]
    resized = np.asarray(image_module.fromarray(array).resize((8, 8), image_module.Resampling.BILINEAR))
    expected = ((resized / 255 - [0.5, 0.4, 0.3]) / 0.2).transpose(2, 0, 1)
    assert values.dtype == np.float32 and values.shape == (1, 3, 8, 8)
    assert np.allclose(values[0], expected, rtol=1e-5, atol=1e-6)
    assert ImageOptions.for_shape([1, 224, 224, 3]) == ImageOptions()


SIZES = [(8, 8), (4, 4), (20, 30), (30, 20), (7, 100), (101, 9), (1, 1), (1, 40), (15, 16), (33, 31)]


@pytest.mark.parametrize("target", [(8, 8), (9, 12), (13, 6)], ids=str)
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_letterbox_keeps_the_proportions(height: int, width: int, target: tuple[int, int]) -> None:
    """LetterBox of ultralytics (auto=False, scaleup, center): sizes and borders by its formulas, Pillow's filter."""
    image = image_module.fromarray(pixels(height, height, width, 3))
    ratio = min(target[0] / height, target[1] / width)
    inner = (max(round(width * ratio), 1), max(round(height * ratio), 1))
    over, down = (target[1] - inner[0]) / 2, (target[0] - inner[1]) / 2
    expected = np.full((*target, 3), 114, np.uint8)
    left, top = round(over - 0.1), round(down - 0.1)
    filtered = image.resize(inner, image_module.Resampling.BILINEAR)
    expected[top : target[0] - round(down + 0.1), left : target[1] - round(over + 0.1)] = np.asarray(filtered)
    options = ImageOptions.for_shape(["N", *target, 3], resize="letterbox")
    assert np.array_equal(options.convert(image), expected)
    assert np.array_equal(expected[0, 0], (114,) * 3) or not (left or top)


@pytest.mark.parametrize("side", [None, 8, 11])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_center_crop_keeps_the_proportions(height: int, width: int, side: int | None) -> None:
    """Resize(side) and CenterCrop(8) of torchvision: sizes and offsets by its formulas, Pillow's filter."""
    image = image_module.fromarray(pixels(width, height, width, 3))
    short, long = min(height, width), max(height, width)
    sides = (side or 8, int((side or 8) * long / short))
    to_height, to_width = sides if height <= width else sides[::-1]
    top, left = round((to_height - 8) / 2.0), round((to_width - 8) / 2.0)
    filtered = np.asarray(image.resize((to_width, to_height), image_module.Resampling.BILINEAR))
    options = ImageOptions.for_shape(["N", 8, 8, 3], resize="center_crop", resize_size=side)
    assert np.array_equal(options.convert(image), filtered[top : top + 8, left : left + 8])


@pytest.mark.parametrize("target", [(9, 12), (13, 6)], ids=str)
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_crop_that_is_no_square_is_covered(height: int, width: int, target: tuple[int, int]) -> None:
    """One side is that of the crop, the other is at least as long."""
    image = image_module.fromarray(np.full((height, width, 3), 7, np.uint8))
    options = ImageOptions.for_shape(["N", *target, 3], resize="center_crop")
    assert np.array_equal(options.convert(image), np.full((*target, 3), 7, np.uint8))


def test_torchvision_crops_the_same_pixels() -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    for height, width in SIZES:
        image = image_module.fromarray(pixels(width, height, width, 3))
        expected = transforms.Compose([transforms.Resize(11), transforms.CenterCrop(8)])(image)
        options = ImageOptions.for_shape(["N", 8, 8, 3], resize="center_crop", resize_size=11)
        assert np.array_equal(options.convert(image), np.asarray(expected))


def test_a_crop_of_a_very_long_image_is_a_fault_of_its_row(tmp_path: Path) -> None:
    """Its shorter side would be enlarged, and its longer side with it, beyond the bound on pixels."""
    image_module.fromarray(np.zeros((1, 50_000, 3), np.uint8)).save(tmp_path / "a.png")
    image_module.fromarray(pixels(0, 60, 60, 3)).save(tmp_path / "b.png")
    options = ImageOptions.for_shape(["N", 64, 64, 3], resize="center_crop")
    block = open_source(tmp_path, images=options).read(0, 2)
    assert block.rows.tolist() == [1] and [(fault.row, fault.code) for fault in block.faults] == [(0, "dataset.image")]


@pytest.mark.parametrize("mode", ["letterbox", "center_crop", "resize"])
def test_the_command_resizes_images(mode: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    arrays = [pixels(number, 6 + number, 9, 3) for number in range(3)]
    for number, array in enumerate(arrays):
        image_module.fromarray(array).save(tmp_path / "images" / f"{number}.png")
    with dovetail.Builder("g") as b:
        b.output("y", b.Relu(b.input("image", "f32", ("n", 3, 8, 8))))
    dovetail.save(b.model, tmp_path / "m.onnx")
    words = ["map", *map(str, (tmp_path / "m.onnx", tmp_path / "images")), "-o", str(tmp_path / "out"), "--format", "npy"]
    words += ["--workers", "1", f"--image-{mode}".replace("_", "-"), "--image-scale", "1"]
    result = CliRunner().invoke(dovetail_command, words)
    assert result.exit_code == 0, result.output
    options = ImageOptions.for_shape(["N", 3, 8, 8], resize="stretch" if mode == "resize" else mode, scale=1)
    found = np.concatenate([np.load(file) for file in sorted((tmp_path / "out" / "y").iterdir())])
    assert np.array_equal(found, [options.convert(image_module.fromarray(array)) for array in arrays])
    both = CliRunner().invoke(dovetail_command, [*words, "--image-resize", "--image-letterbox"])
    assert both.exit_code == 2 and "exclude each other" in both.output


WRONG: list[Any] = [
    lambda: ImageOptions(size=(8, 8), mode="crop"),
    lambda: ImageOptions(size=(8, 8), mode="letterbox", resize_size=9),
    lambda: ImageOptions(size=(8, 9), mode="center_crop", resize_size=8),
    lambda: ImageOptions.for_shape([1, 3, 224, 224], resize_size=256),
    lambda: ImageOptions.for_shape([1, 3, 224, 3]),
    lambda: ImageOptions.for_shape([1, 1, 28, 28]),
    lambda: ImageOptions.for_shape([1, 784]),
    lambda: ImageOptions.for_shape(["N", 3, "H", "W"], resize=True),
    lambda: ImageOptions(layout="CHW"),
    lambda: ImageOptions(size=(0, 3)),
    lambda: ImageOptions(size=(1 << 20, 1 << 20)),
    lambda: ImageOptions(mean=(1.0, 2.0)),
    lambda: ImageOptions(std=(0.0,)),
    lambda: ImageOptions(scale=float("nan")),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_options_are_refused(number: int) -> None:
    with pytest.raises(EngineError) as caught:
        WRONG[number]()
    assert caught.value.code == "dataset.image"


def test_options_need_images(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(EngineError) as caught:
        open_source(tmp_path, images=ImageOptions())
    assert caught.value.code == "dataset.image"


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_images_that_cannot_be_decoded_are_faults(tmp_path: Path) -> None:
    good = pixels(0, 4, 4, 3)
    image_module.fromarray(good).save(tmp_path / "good.png")
    data = (tmp_path / "good.png").read_bytes()
    (tmp_path / "bomb.png").write_bytes(png(10_000, 10_000, zlib.compress(bytes(1000))))
    (tmp_path / "bigger.png").write_bytes(png(1 << 30, 1 << 30, b""))
    (tmp_path / "cut.png").write_bytes(data[:-30])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.gif").write_text("GIF89a")
    (tmp_path / "script.bmp").write_text("%!PS-Adobe-3.0 EPSF-3.0")
    image_module.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "deep.png")
    source = open_source(tmp_path)
    block = source.read(0, source.rows)
    assert block.kept["file"].tolist() == ["good.png"] and np.array_equal(block.columns["image"][0], good)
    assert block.faults == open_source(tmp_path).read(0, source.rows).faults
    assert not [fault.message for fault in block.faults if "<" in fault.message]
    assert {fault.file: fault.code for fault in block.faults} == {
        "bomb.png": "file.size",
        "bigger.png": "file.size",
        "cut.png": "dataset.unreadable",
        "empty.jpg": "dataset.unreadable",
        "text.gif": "dataset.unreadable",
        "script.bmp": "dataset.unreadable",
        "deep.png": "dataset.image",
    }
    assert all(source.file_of(fault.row) == fault.file for fault in block.faults)


def test_mutated_images_are_faults_or_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for suffix in ("png", "jpg", "gif", "webp", "tiff", "bmp"):
        path = tmp_path / f"x.{suffix}"
        image_module.fromarray(pixels(0, 20, 20, 3)).save(path)
        data = path.read_bytes()
        for number in range(20):
            changed = bytearray(data)
            for offset in rng.integers(0, len(data), 3):
                changed[offset] = rng.integers(0, 256)
            (tmp_path / f"{number}.{suffix}").write_bytes(changed)
    source = open_source(tmp_path)
    block = source.read(0, source.rows)
    assert sorted([*block.rows.tolist(), *(fault.row for fault in block.faults)]) == list(range(source.rows))


def test_names_of_results_differ() -> None:
    suffixes = [".png", ".PNG", ".jpg", ".gif"]
    names = [stem + "".join(parts) for count in (1, 2, 3) for parts in itertools.product(suffixes, repeat=count) for stem in "ab"]
    assert len({picture_name(name) for name in names}) == len(names)
    assert all(picture_name(name).lower().endswith(".png") for name in names)


def test_results_are_images(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out", "images", rows=4, part_rows=2)
    sink.prepare()
    files = np.array(["a.png", "b/c.jpg", "b/d.png", "e.gif"], object)
    columns = {"file": files, "mask": pixels(0, 4, 5, 6, 1), "view": pixels(1, 4, 3, 5, 6), "score": np.arange(4.0)}
    for part in range(2):
        rows = np.arange(2) + 2 * part
        sink.write(part, rows, {name: values[rows] for name, values in columns.items()}, [])
    assert sink.parts() == {0, 1}
    assert np.array_equal(np.asarray(image_module.open(tmp_path / "out/view/b/c.jpg.png")), columns["view"][1].transpose(1, 2, 0))
    assert np.array_equal(np.asarray(image_module.open(tmp_path / "out/mask/b/d.png")), columns["mask"][2][:, :, 0])
    lines = [json.loads(line) for line in (tmp_path / "out/_rows/part-00001.jsonl").read_text().splitlines()]
    assert lines[1] == {"row": 3, "pictures": ["mask/e.gif.png", "view/e.gif.png"], "file": "e.gif", "score": 3.0}
    assert open_source(tmp_path / "out" / "view").rows == 4
    (tmp_path / "out" / "mine").mkdir()
    sink.remove()
    assert os.listdir(tmp_path / "out") == ["mine"]


def test_two_rows_do_not_write_one_image(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out", "images", rows=2, part_rows=2)
    pixels = np.zeros((2, 4, 4), np.uint8)
    for names in (["a.png", "a.png"], ["a/b.png", "a//b.png"], ["a.jpg", "./a.jpg"]):
        with pytest.raises(EngineError, match="different") as caught:
            sink.write(0, np.arange(2), {"y": pixels, "file": names}, [])
        assert caught.value.code == "dataset.output" and sink.parts() == set()
    sink.write(0, np.arange(2), {"y": pixels, "file": ["a.jpg", "a.jpg.png"]}, [])
    assert sink.parts() == {0}


def test_results_that_are_no_images_are_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "images", rows=2, part_rows=2)
    cases: list[dict[str, Any]] = [
        {"y": np.zeros((2, 3))},
        {"y": pixels(0, 2, 5, 4, 7)},
        {"y": pixels(0, 2, 4, 4), "file": np.array(["../a.png", "b.png"], object)},
        {"y": pixels(0, 2, 4, 4), "pictures": np.arange(2)},
        {"y": pixels(0, 2, 4, 4), "z": np.arange(2) * 1j},
    ]
    for columns in cases:
        with pytest.raises(EngineError) as caught:
            sink.write(0, np.arange(2), columns, [])
        assert caught.value.code == "dataset.output" and sink.parts() == set()
    sink.write(0, np.arange(2), {"y": pixels(0, 2, 4, 4)}, [])
    assert sorted(os.listdir(tmp_path / "y")) == ["row-000000000000.png", "row-000000000001.png"]


def test_a_folder_of_images_is_mapped(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with dovetail.Builder("mean") as b:
        x = b.input("x", "f32", ("rows", 3, 8, 8))
        b.output("y", b.ReduceMean(x, b.constant(np.array([2, 3])), keepdims=0))
    dovetail.save(b.model, tmp_path / "model.onnx")
    (tmp_path / "in" / "class").mkdir(parents=True)
    arrays = [pixels(number, 8, 8, 3) for number in range(5)]
    for number, array in enumerate(arrays):
        image_module.fromarray(array).save(tmp_path / "in" / "class" / f"{number}.png")
    (tmp_path / "in" / "class" / "5.png").write_bytes(b"nothing")
    image_module.fromarray(pixels(9, 4, 4, 3)).save(tmp_path / "in" / "class" / "6.png")
    command = ["map", f"{tmp_path}/model.onnx", f"{tmp_path}/in", "-o", f"{tmp_path}/out", "--workers", "1", "--json"]
    command += ["--image-scale", "0.5", "--image-mean", "1,2,3"]
    result = CliRunner().invoke(dovetail_command, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    table = parquet.read_table(tmp_path / "out")
    assert table["row"].to_pylist() == list(range(5)) and table["file"].to_pylist() == [f"class/{row}.png" for row in range(5)]
    means = np.stack([array.mean(axis=(0, 1)) for array in arrays]) * 0.5 - [1, 2, 3]
    np.testing.assert_allclose(np.stack(table["y"].to_numpy()), means, rtol=1e-5)
    lines = [json.loads(line) for line in next((tmp_path / "out" / "_errors").iterdir()).read_text().splitlines()]
    assert [(line["row"], line["file"], line["code"]) for line in lines] == [
        (5, "class/5.png", "dataset.unreadable"),
        (6, "class/6.png", "batch.shape"),
    ]
    resumed = CliRunner().invoke(dovetail_command, [*command[:-4], "--image-scale", "0.25"])
    assert isinstance(resumed.exception, EngineError) and resumed.exception.code == "folder.resume"
    assert "option images" in resumed.exception.message
    wrong = CliRunner().invoke(dovetail_command, [*command[:-4], "--image-mean", "1;2"])
    assert wrong.exit_code == 2
