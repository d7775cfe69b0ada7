"""Our log-mel features equal transformers' `WhisperFeatureExtractor`."""

import subprocess
import sys

SCRIPT = """
import numpy as np
from transformers import WhisperFeatureExtractor
from openxla.benchmark.models import preprocessing
signals = preprocessing.signal_batch(preprocessing.synthetic_signal(48_000, seed=0), batch_size=2)
extractor = WhisperFeatureExtractor(chunk_length=3)
theirs = extractor(list(signals), sampling_rate=16_000, return_tensors="np").input_features
ours = preprocessing.log_mel(signals, bands=80)
assert ours.shape == theirs.shape == (2, 80, 300), theirs.shape
assert theirs.std() > 0.1
# Ours are rounded to multiples of 2^-14; theirs, through torch, are right to about 1e-5.
worst = float(np.abs(ours - theirs).max())
assert worst <= 2.0**-15 + 1e-5, worst
"""


def test_features_are_those_of_transformers():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
