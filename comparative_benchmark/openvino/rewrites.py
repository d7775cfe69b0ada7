"""Operations of exported PyTorch programs that OpenVINO's front end converts wrongly or not at all.

Before conversion, they are replaced by equivalent ones. PyTorch is imported by the code that
exported the program.
"""

from typing import Any

import torch

_ATEN = torch.ops.aten


def apply(program: torch.export.ExportedProgram) -> None:
    """Rewrites a program in place."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is _ATEN.scaled_dot_product_attention.default:
            _repeat_shared_heads(graph, node)
        elif node.target is _ATEN.avg_pool2d.default:
            _pool_all(graph, node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _repeat_shared_heads(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Gives each head of the queries separate keys and values.

    OpenVINO 2026.4 does not read `enable_gqa` and finds different numbers of heads.
    """
    if not node.kwargs.get("enable_gqa"):
        return
    query, key, value, *rest = node.args
    times = query.meta["val"].shape[-3] // key.meta["val"].shape[-3]
    with graph.inserting_before(node):
        repeated = [
            _call(graph, _ATEN.repeat_interleave.self_int, part, times, -3) for part in (key, value)
        ]
    node.args = (query, *repeated, *rest)
    node.kwargs = {name: item for name, item in node.kwargs.items() if name != "enable_gqa"}


def _pool_all(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Replaces an average over a window that is larger than the picture by a mean.

    PyTorch clips such a window (`ceil_mode`, no padding) and divides by the rest; OpenVINO refuses
    it.
    """
    source, kernel, *_ = node.args
    due, got = node.meta["val"].shape[-2:], source.meta["val"].shape[-2:]
    is_larger = all(size > there for size, there in zip(kernel, got, strict=True))
    has_padding = len(node.args) > 3 and any(node.args[3])
    if tuple(due) != (1, 1) or not is_larger or has_padding or len(node.args) > 6:
        return
    with graph.inserting_before(node):
        mean = _call(graph, _ATEN.mean.dim, source, [-2, -1], True)
    node.replace_all_uses_with(mean)


def _call(graph: torch.fx.Graph, target: Any, *args: Any) -> torch.fx.Node:
    """Returns a new node, with the shape and type of its result."""
    node = graph.call_function(target, args)
    values = [item.meta["val"] if isinstance(item, torch.fx.Node) else item for item in args]
    node.meta["val"] = target(*values)
    return node
