"""Folders of graph networks, which are PyTorch Geometric's."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .... import DATA_PATH
from ....tasks import GNN
from ...model import BenchmarkModel
from .. import Stages

_CLASSES = {"gat": "GAT", "gcn": "GCN", "edgecnn": "EdgeCNN", "gin": "GIN", "sage": "GraphSAGE"}
_CLASSES_OF_REDDIT = 41
_NODES, _EDGES, _WIDTH = 10_000, 200_000, 64


class GNNModel(Stages, BenchmarkModel):
    """A network of one layer by its short name, on a part of Reddit that install.py fetches."""

    GNN_MODEL = True

    def __init__(
        self,
        model_name: str,
        test: str,
        device: str,
        batch_size: int | None = None,
        extra_args: Sequence[str] = (),
        **_: Any,
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        kind = getattr(import_module("torch_geometric.nn"), _CLASSES[model_name])
        parser = argparse.ArgumentParser()
        parser.add_argument("--graph_type", choices=("dense", "sparse"), default="dense")
        self.tb_args, self.extra_args = parser.parse_known_args(self.extra_args)
        suffix = "_sparse" if self.tb_args.graph_type == "sparse" else ""
        file = Path(DATA_PATH) / "Reddit_minimal" / f"sub_reddit{suffix}.pt"
        graph = torch.load(file, weights_only=False)
        self.subgraph_loader = import_module("torch_geometric.loader").NeighborLoader(
            graph, num_neighbors=[-1], input_nodes=None, batch_size=self.batch_size, num_workers=0
        )
        heads = {"heads": 2} if model_name == "gat" else {}
        self.model = kind(graph.num_features, _WIDTH, 1, _CLASSES_OF_REDDIT, **heads).to(device)
        batches = list(self.subgraph_loader)
        self.example_inputs = [
            {"x": batch.x.to(device), "edge_index": _edges(batch).to(device)} for batch in batches
        ]
        self.example_outputs = [batch.y.to(device) for batch in batches]
        self.num_batch = len(batches)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loss_fn = torch.nn.CrossEntropyLoss()
        self.model.train(test == "train")

    def get_module(self) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
        """Returns the module and the first batch."""
        return self.model, self.example_inputs[0]

    def forward(self) -> torch.Tensor:
        """Returns the loss of the first batch."""
        loss: torch.Tensor = self.loss_fn(
            self.model(**self.example_inputs[0]), self.example_outputs[0]
        )
        return loss

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns scores f32[nodes, classes] of all batches."""
        return (torch.cat([self.model(**batch).cpu() for batch in self.example_inputs]),)


class BasicGNNModel(BenchmarkModel):
    """A network of three layers by its short name, on a random graph; training without a step."""

    ALLOW_CUSTOMIZE_BSIZE = False
    DEFAULT_TRAIN_BSIZE = 1
    DEFAULT_EVAL_BSIZE = 1
    task = GNN.CLASSIFICATION

    def __init__(
        self,
        model_name: str,
        test: str,
        device: str,
        batch_size: int | None = None,
        extra_args: Sequence[str] = (),
        **_: Any,
    ) -> None:
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        kind = getattr(import_module("torch_geometric.nn"), _CLASSES[model_name])
        self.model = kind(_WIDTH, _WIDTH, num_layers=3).to(device)
        nodes = torch.randn(_NODES, _WIDTH, device=device)
        self.example_inputs = (nodes, torch.randint(_NODES, (2, _EDGES), device=device))

    def get_module(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]:
        """Returns the module, nodes f32[10000, 64] and edges i64[2, 200000]."""
        return self.model, self.example_inputs

    def train(self, niter: int = 1) -> None:
        """Computes gradients from a random gradient of the output."""
        out = self.model(*self.example_inputs)
        out.backward(torch.randn_like(out))

    def eval(self, niter: int = 1) -> tuple[torch.Tensor]:
        """Returns f32[10000, 64]."""
        self.model.eval()
        return (self.model(*self.example_inputs),)


def _edges(batch: Any) -> torch.Tensor:
    edges: torch.Tensor = batch.adj_t if hasattr(batch, "adj_t") else batch.edge_index
    return edges
