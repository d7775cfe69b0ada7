"""gemlitewo-<bits>-<group>: weights in few bits by gemlite's Triton kernels; torchao dropped it."""

from comparative_benchmark.recipes.registry import Parameter, Recipe

RECIPE = Recipe(
    name="gemlitewo",
    description="4-bit or 8-bit weights with gemlite's Triton kernels",
    parameters=(Parameter(name="bits", choices=(4, 8)), Parameter(name="group")),
    min_sqnr_db=lambda values: 6.0 * values["bits"] - 12.0,
    lacking={"pt_inductor": "torchao 0.18 no longer has gemlite; use intx-<bits>-<group> instead"},
)
