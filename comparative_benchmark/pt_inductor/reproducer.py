"""PyTorch: programs of `torch.export`, with the weights in the same archives."""

from collections.abc import Sequence

import torch

from comparative_benchmark.backends import generation_export, reproducing
from comparative_benchmark.backends.reproducing import Exported, ExportTask

# What was measured, by compiler.
_MEASURED = {
    "eager": "the model's Python, op by op",
    "inductor": "`torch.compile` of the model, whose Python Dynamo traces",
    "aot-inductor": "AOTInductor of a `torch.export` program",
}


def export(task: ExportTask) -> Exported:
    """Writes `model.pt2`; of a model that generates, `prefill.pt2` and `decode.pt2`."""
    torch.set_grad_enabled(False)
    context = task.context
    programs, plan = generation_export.programs(task.model(), task.inputs, context.phase)
    names, files = [f"{name}.pt2" for name in reproducing.program_names(plan)], {}
    for name, program in zip(names, programs, strict=True):
        torch.export.save(program, str(task.directory / name))
        text = name.replace(".pt2", ".txt")
        (task.directory / text).write_text(f"{program}\n", encoding="utf-8")
        files[name] = (
            "what is compiled, as `torch.export.load` reads it, and its weights: a zip archive"
        )
        files[text] = f"{name} for people"
    note = (
        f"Measured was {_MEASURED[context.compiler]}. Here it is the graph that `torch.export` "
        "makes of the model: it starts behind Dynamo, and graph breaks are gone. Inductor's cache "
        "is the user's: for a cold compilation set TORCHINDUCTOR_CACHE_DIR to an empty folder."
    )
    if plan is not None:
        note += " The loop over tokens is outside of it: prefill and decode are a program each."
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
