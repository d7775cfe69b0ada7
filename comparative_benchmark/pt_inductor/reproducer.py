"""PyTorch: programs of `torch.export`, with the weights in the same archives."""

from collections.abc import Sequence

import torch

from comparative_benchmark.backends import reproducing
from comparative_benchmark.backends.frameworks import generation_export
from comparative_benchmark.backends.reproducing import Exported, ExportTask

# Description of what was measured, by compiler.
_MEASURED = {
    "eager": "the model's Python, op by op",
    "inductor": "`torch.compile` of the model, traced by Dynamo",
    "aot-inductor": "AOTInductor of a `torch.export` program",
}


def export(task: ExportTask) -> Exported:
    """Writes `model.pt2`; for a model that generates, `prefill.pt2` and `decode.pt2`."""
    torch.set_grad_enabled(False)
    context = task.context
    programs, plan = generation_export.programs(task.model(), task.inputs, context.phase)
    names, files = [f"{name}.pt2" for name in reproducing.program_names(plan)], {}
    for name, program in zip(names, programs, strict=True):
        torch.export.save(program, str(task.directory / name))
        text = name.replace(".pt2", ".txt")
        (task.directory / text).write_text(f"{program}\n", encoding="utf-8")
        files[name] = (
            "the program to compile and its weights: a zip archive for `torch.export.load`"
        )
        files[text] = f"{name} as text"
    note = (
        f"The measurement ran {_MEASURED[context.compiler]}. The reproducer runs the graph that "
        "`torch.export` makes of the model: it includes neither Dynamo's tracing nor graph breaks. "
        "Inductor uses your own cache: for a cold compilation, set TORCHINDUCTOR_CACHE_DIR to an "
        "empty folder."
    )
    if plan is not None:
        note += " The loop over tokens is not part of it: prefill and decode are separate programs."
    return Exported(
        settings={
            "compiler": context.compiler,
            "options": list(context.options),
            "threads": context.threads,
            "call": reproducing.calls(plan, names),
        },
        packages=("torch", "numpy", *(["ml_dtypes"] if _has_bfloat16(programs) else [])),
        files=files,
        modules=reproducing.modules(plan),
        notes=(note,),
    )


def _has_bfloat16(programs: Sequence[torch.export.ExportedProgram]) -> bool:
    return any(
        value.dtype == torch.bfloat16
        for program in programs
        for value in program.state_dict.values()
    )
