"""What install, prepare and run do. What is here is what `Package` does by itself."""

from milabench.pack import Package


class Benchmark(Package):
    """Requirements, preparation and main script by their usual names."""

    base_requirements = "requirements.in"
    prepare_script = "prepare.py"
    main_script = "main.py"

    # To change what is run, override `build_run_plan`; to install more, `install`:
    #
    #     async def install(self):
    #         await super().install()


__pack__ = Benchmark
