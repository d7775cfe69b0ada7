"""The guide's functions and commands, in tests that take seconds; `tests/` has real runs."""

import contextlib
import importlib.util
import io
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks.microbenchmarks import benchmark_runner, utils  # noqa: E402
from comparative_benchmark.studies.micro import guide  # noqa: E402
from comparative_benchmark.studies.micro.config import read  # noqa: E402

GUIDE = ROOT / "benchmarks/dashboard/microbenchmark_quantization_config.yml"


def _needs(module: str) -> object:
    lacking = importlib.util.find_spec(module) is None
    return unittest.skipIf(lacking, f"{module} is not installed")


class StringToConfig(unittest.TestCase):
    """Recipe names become torchao's configurations, or an error that lists the known names."""

    def test_the_baseline_is_none(self) -> None:
        self.assertIsNone(utils.string_to_config("baseline", None))
        self.assertIsNone(utils.string_to_config(None, None))

    def test_an_unknown_recipe_is_an_error(self) -> None:
        with self.assertRaisesRegex(LookupError, "did you mean int8wo"):
            utils.string_to_config("int8w", None)

    @_needs("torchao")
    def test_a_recipe_is_a_configuration_with_its_parameters(self) -> None:
        found = utils.string_to_config("intx-4-64", None)
        self.assertEqual(type(found).__name__, "IntxWeightOnlyConfig")


class Models(unittest.TestCase):
    """Layers by name, with their input."""

    @_needs("torch")
    def test_a_layer_takes_m_by_k_and_gives_m_by_n(self) -> None:
        for name in ("linear", "ln_linear"):
            model, inputs = utils.create_model_and_input_data(
                name, 4, 16, 8, "torch.float32", device="cpu"
            )
            self.assertEqual(tuple(inputs.shape), (4, 16))
            self.assertEqual(tuple(model(inputs).shape), (4, 8))


class Runner(unittest.TestCase):
    """The YAML and the command that reads it."""

    def test_the_guides_file_has_a_row_for_each_recipe_and_shape(self) -> None:
        config = read(GUIDE, highest=8)
        (model,) = config.models
        rows = guide.rows(config, model)
        self.assertEqual(len(rows), len(config.quantizations) * len(model.shapes))
        self.assertLess(set(guide.FIRST_COLUMNS[:8]), set(guide.csv_text(config, []).split(",")))

    def test_what_cannot_be_is_a_line_and_exit_code_1(self) -> None:
        for text, told in (
            ("model_params: {model_type: linar}", "did you mean linear?"),
            ("output_dir: /dev/null\n" + _SMALL, "/dev/null/inference/results_"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "c.yml")
                path.write_text(text, encoding="utf-8")
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    code = benchmark_runner.run(["--config", str(path)])
            self.assertEqual(code, 1)
            self.assertIn(told, said.getvalue())


_SMALL = "model_params: {device: cpu, matrix_shapes: {name: custom, shapes: [[8, 8, 8]]}}\n"

if __name__ == "__main__":
    unittest.main()
