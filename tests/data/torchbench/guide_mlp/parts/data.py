"""A mini data set, found from any directory."""

import json
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent.parent


def load_batch():
    rows = json.loads((FOLDER / "rows.json").read_text())
    return torch.tensor(rows["x"]), torch.tensor(rows["y"])
