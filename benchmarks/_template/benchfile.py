"""Defines install, prepare and run. As written, it does the same as `Package` by default."""

from milabench.pack import Package


class Benchmark(Package):
    """Requirements, preparation and main script by their usual names."""

    base_requirements = "requirements.in"
    prepare_script = "prepare.py"
    main_script = "main.py"

    # To change the command, override `build_run_plan`. To install more, override `install`:
    #
    #     async def install(self):
    #         await super().install()


__pack__ = Benchmark
