"""Notes on TF32."""

import pytest

from comparative_benchmark.backends import host_settings


@pytest.mark.parametrize("allowed", [True, False, None])
def test_the_stacks_own_word_on_a_gpu(allowed, monkeypatch):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    assert host_settings.note(on_gpu=True, types=["float32", "int32"], allowed=allowed) is allowed


def test_nothing_to_note_without_a_gpu_or_without_float32():
    assert host_settings.note(on_gpu=False, types=["float32"], allowed=True) is None
    assert host_settings.note(on_gpu=True, types=["bfloat16", "int32"], allowed=True) is None


def test_nvidias_libraries_follow_the_user(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert host_settings.note(on_gpu=True, types=["float32"], allowed=False) is True
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert host_settings.note(on_gpu=True, types=["float32"], allowed=False) is False


@pytest.mark.parametrize(
    ("types", "found"),
    [
        (["float32", "int64", "bool"], True),
        (["float32", "bfloat16"], False),
        (["float16"], False),
        # A model that hides its types.
        (["int32"], True),
        ([], True),
    ],
)
def test_a_model_of_float32_has_no_other_fractions(types, found):
    assert host_settings.is_float32(types) is found
