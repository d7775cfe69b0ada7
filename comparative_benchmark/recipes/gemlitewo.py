"""gemlitewo-<bits>-<group>: weights in few bits by gemlite's Triton kernels; torchao dropped it."""

from comparative_benchmark.recipes.registry import Parameter, Recipe

RECIPE = Recipe(
    name="gemlitewo",
    description="weights in 4 or 8 bits by gemlite's Triton kernels",
    parameters=(Parameter(name="bits", choices=(4, 8)), Parameter(name="group")),
    min_sqnr_db=lambda values: 6.0 * values["bits"] - 12.0,
    lacking={"pt_inductor": "torchao 0.18 has no gemlite any more; intx-<bits>-<group> is nearest"},
)
