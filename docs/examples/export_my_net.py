"""Exports `my_net.py` as an example program: `python export_my_net.py FOLDER`."""

import sys
from pathlib import Path

import torch
from my_net import MyNet, example_inputs


def main(folder: Path) -> None:
    """Writes `my_net.onnx` and `my_net.pt2`, with a dynamic batch size."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    inputs = (example_inputs(),)
    sizes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(MyNet().eval(), inputs, dynamic_shapes=sizes)
    torch.export.save(exported, folder / "my_net.pt2")
    torch.onnx.export(exported, (), dynamo=True, verbose=False).save(folder / "my_net.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
