"""`--image` prepares a picture in the same way as the directory's image processor."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openxla.benchmark import testdata
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.user_models import ModelOptions, UserModelError, definitions, find_cases

PROCESSOR = {
    "size": {"height": 32, "width": 32},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.25, 0.5, 0.5],
}


@pytest.fixture
def vit(tmp_path):
    target = tmp_path / "my-vit"
    shutil.copytree(checkpoints.seeded(architectures.get("vit"), "vit-tiny"), target)
    (target / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    shutil.copy(testdata.DEFAULT_IMAGE, tmp_path / "cat.png")
    return target


def on_image(vit, file="cat.png", **wanted):
    return ModelOptions(folder=vit.parent, image=vit.parent / file, **wanted)


def pixels_of(case):
    [array] = array_files.load_all(Path(case.input_data.source_url), "input")
    return np.asarray(array)


def test_a_picture_is_the_input_of_all_frameworks_in_each_type(vit):
    cases = find_cases("my-vit", on_image(vit, batch_sizes=(2,), data_types=("fp32", "bf16"))).cases
    assert len(cases) == 6
    first = pixels_of(cases[0])
    assert (first.shape, first.dtype.name) == ((2, 3, 32, 32), "float32")
    assert {pixels_of(case).dtype.name for case in cases} == {"float32", "bfloat16"}
    small = Image.open(vit.parent / "cat.png").convert("RGB").resize((32, 32), 2)
    due = (np.asarray(small) / 255 - 0.5) / [0.25, 0.5, 0.5]
    assert np.allclose(first[0], due.transpose(2, 0, 1), atol=1e-6)
    # Rows differ, so that a compiler that mixes them up is found.
    assert np.array_equal(first[1], np.roll(first[0], 3, axis=2))
    Image.open(vit.parent / "cat.png").rotate(90).save(vit.parent / "turned.png")
    other = find_cases("my-vit", on_image(vit, "turned.png", batch_sizes=(2,))).cases
    assert other[0].input_data != cases[0].input_data


@pytest.mark.parametrize("size", [(49, 49), (49, 60), (60, 49)])
def test_the_shorter_side_gets_exactly_the_length_of_the_processor(vit, size):
    sizes = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": 32}
    (vit / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **sizes}))
    Image.open(vit.parent / "cat.png").resize(size).save(vit.parent / "cat.png")
    reds = pixels_of(find_cases("my-vit", on_image(vit)).cases[0])[0, 0]
    # The crop would fill a missing row or column with black.
    assert all(reds.max(axis=axis).min() > -2 for axis in (0, 1))


def test_a_number_as_size_is_the_shorter_side_in_old_files(vit):
    file, wide = vit / "preprocessor_config.json", Image.open(vit.parent / "cat.png")
    wide.resize((80, 40)).save(vit.parent / "cat.png")
    crop = {**PROCESSOR, "do_center_crop": True, "crop_size": 32}
    found = []
    for changes in (
        {"size": {"shortest_edge": 32}},
        {"size": 32, "feature_extractor_type": "CLIPFeatureExtractor"},
        {"size": 32},
    ):
        file.write_text(json.dumps({**crop, **changes}))
        found.append(pixels_of(find_cases("my-vit", on_image(vit)).cases[0]))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (None, "has no preprocessor_config.json"),
        ({"size": {"height": 48, "width": 32}}, "produces 48x32 images, but the model takes 32x"),
        ({"size": "large"}, "is not supported: "),
        ({"image_std": ["a"]}, "is not supported: "),
        ({"rescale_offset": True}, "rescale_offset is not implemented"),
    ],
)
def test_a_processor_that_does_not_fit_is_reported(vit, changes, words):
    file = vit / "preprocessor_config.json"
    file.unlink() if changes is None else file.write_text(json.dumps({**PROCESSOR, **changes}))
    with pytest.raises(UserModelError) as raised:
        find_cases("my-vit", on_image(vit))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"", b"\x89PNG\r\n\x1a\n cut short"])
def test_what_is_no_picture_is_reported(vit, content):
    (vit.parent / "cat.png").unlink()
    if content is not None:
        (vit.parent / "cat.png").write_bytes(content)
    with pytest.raises(UserModelError, match=r"cat.png cannot be read as an image"):
        find_cases("my-vit", on_image(vit))


def test_who_takes_no_picture_reports_it(vit, tmp_path):
    bert = tmp_path / "bert"
    shutil.copytree(checkpoints.seeded(architectures.get("bert"), "bert-tiny"), bert)
    with pytest.raises(UserModelError, match="bert does not accept RGB images"):
        find_cases("bert", on_image(vit))
    with pytest.raises(UserModelError, match="--text and --image cannot be combined"):
        find_cases("my-vit", on_image(vit, text=tmp_path / "cat.png"))
    with pytest.raises(UserModelError, match="--image and --inputs cannot be combined"):
        find_cases("my-vit", on_image(vit, inputs_dir=tmp_path))
    (tmp_path / "net.py").write_text("import torch\n")
    with pytest.raises(UserModelError, match=r"--image requires a Hugging Face directory, but net"):
        find_cases("net.py", on_image(vit))


def test_the_picture_is_kept_with_the_definitions(vit, tmp_path):
    wanted = on_image(vit)
    kept = definitions("my-vit", wanted, find_cases("my-vit", wanted).cases, tmp_path / "suite")
    kept.write()
    assert (tmp_path / "suite" / "inputs" / "cat.png").is_file()
    assert "image=HERE / 'inputs' / 'cat.png'" in kept.content
