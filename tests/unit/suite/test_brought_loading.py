"""A user's Python file: the choice of the model in it, and its import in a worker."""

import importlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from openxla.benchmark.user_models import ModelOptions, UserModelError, find_cases, is_model
from openxla.benchmark.user_models.python_files.loading import SEED, UserFile
from openxla.benchmark.workloads import workload_of

MODEL = """
class Net:
    def __init__(self):
        self.width = 3

def create_model():
    return Net()

def example_inputs():
    return (1, 2)
"""
TORCH = "import torch\nfrom torch import nn\n"
INPUTS = "def example_inputs(): ...\n"


@pytest.fixture
def write(tmp_path):
    def write(name, text, *more):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text) + "".join(more))
        return path

    return write


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Loads a file as a worker does; undoes changes of this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = dict(sys.modules)

    def load(name, seed=lambda _: None):
        importlib.invalidate_caches()
        wanted = ModelOptions(folder=tmp_path, framework="pt", inputs=("f32[1]",))
        (case,) = find_cases(str(name), wanted).cases
        return UserFile(case.model.model_parameters, seed)

    yield load
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def refused(tmp_path, text, **wanted):
    with pytest.raises(UserModelError) as raised:
        find_cases(text, ModelOptions(folder=tmp_path, **wanted))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def chosen(tmp_path, text, **wanted):
    (case,) = find_cases(text, ModelOptions(folder=tmp_path, **wanted)).cases
    return case.model.model_parameters["callable"]


@pytest.mark.parametrize(
    ("name", "own_import", "module"),
    [
        ("pack/net.py", "from .layers import Layer", "pack.net"),
        ("pack/net.py", "from . import layers\nLayer = layers.Layer", "pack.net"),
        ("pack/net.py", "from pack.layers import Layer", "pack.net"),
        ("pack/net.py", "from layers import Layer", "net"),
        ("pack/my net-2.0.py", "from .layers import Layer", "pack.my_net_2_0"),
        ("pack/deep/net.py", "from ..layers import Layer", "pack.deep.net"),
        ("pack/__init__.py", "from .layers import Layer", "pack"),
        # Folders without `__init__.py` are packages, too.
        ("loose/net.py", "from .layers import Layer", "loose.net"),
        ("loose/deep/net.py", "from ..layers import Layer", "loose.deep.net"),
        ("my-folder/net.py", "from .layers import Layer", "my-folder.net"),
    ],
)
def test_a_file_finds_the_modules_next_to_it(write, loaded, tmp_path, name, own_import, module):
    folder = name.partition("/")[0]
    if folder == "pack":
        write("pack/__init__.py", "")
        write("pack/deep/__init__.py", "")
    layers = write(f"{folder}/layers.py", "class Layer:\n    width = 3\n")
    file = write(name, f"{own_import}\n", "model = Layer()\n", MODEL.replace("create_", "make_"))
    brought = loaded(file)
    assert brought.make().width == 3
    assert brought._module.__name__ == module
    # If the module next to it changes, it is another model.
    wanted = ModelOptions(folder=tmp_path, framework="pt", inputs=("f32[1]",))
    before = workload_of(find_cases(str(file), wanted).cases[0]).digest
    layers.write_text("class Layer:\n    width = 4\n")
    assert workload_of(find_cases(str(file), wanted).cases[0]).digest != before


def test_relative_imports_that_cannot_work_name_the_folder(write, tmp_path):
    write("v1.2/net.py", "from .layers import Layer\n", MODEL)
    assert "its folder 'v1.2' cannot be a package: rename" in refused(tmp_path, "v1.2/net.py")


@pytest.mark.parametrize(
    "name", ["random.py", "types.py", "numpy.py", "my net.py", "größe.py", "my-net.py", "1net.py"]
)
def test_a_file_may_have_any_name(write, loaded, name):
    own = "import random, types, numpy\nDRAWN = numpy.zeros(2), random.random(), types.FunctionType"
    brought = loaded(write(name, f"from __future__ import annotations\n{own}\n", MODEL))
    assert brought.make().width == 3
    assert brought.example_inputs() == (1, 2)
    assert not any(getattr(sys.modules[n], "DRAWN", None) for n in ("random", "types", "numpy"))


def test_libraries_find_no_files_of_the_user(write, loaded):
    """The file's own imports find its neighbours; later imports of libraries do not."""
    write("colorsys.py", "OWN = True")
    write("sched.py", "OWN = True")
    for name in ("colorsys", "sched"):
        sys.modules.pop(name, None)
    brought = loaded(write("net.py", "import colorsys\n", MODEL))
    assert brought._module.colorsys.OWN
    assert not hasattr(importlib.import_module("sched"), "OWN")


def test_a_file_runs_as_a_script_without_arguments(write, loaded, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["worker", "5", "6"])
    text = """
        import argparse, dataclasses, pickle, random, sys
        import numpy as np
        parser = argparse.ArgumentParser()
        parser.add_argument("--width", type=int, default=4)
        options = parser.parse_args()

        @dataclasses.dataclass
        class Options:
            width: int

        copied = pickle.loads(pickle.dumps(Options(options.width)))
        drawn = random.random(), np.random.rand()

        def create_model():
            with open(sys.argv[0].replace("net.py", "whole.pkl"), "rb") as file:
                return pickle.load(file)

        class Net:
            pass

        if __name__ == "__main__":
            pickle.dump(Net(), open("whole.pkl", "wb"))
    """
    file = write("net.py", text)
    subprocess.run([sys.executable, str(file)], cwd=file.parent, check=True)
    seeds = []
    brought = loaded(file, seed=seeds.append)
    assert brought._module.copied.width == 4
    # The pickle names the class `__main__.Net`.
    assert type(brought.make()) is brought._module.Net
    assert sys.argv == ["worker", "5", "6"]
    assert sys.modules["__main__"] is not brought._module
    # A module draws the same numbers in each process.
    assert seeds == [SEED, SEED]
    assert loaded(file)._module.drawn == brought._module.drawn
    np.random.seed(None)  # noqa: NPY002


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            (
                "import argparse\np = argparse.ArgumentParser()\n"
                "p.add_argument('--data', required=True)\np.parse_args()\n"
            ),
            (
                "ended the program (line 4): the following arguments are required: --data; move "
                'the code that runs it as a script below `if __name__ == "__main__":`'
            ),
        ),
        ("import sys\nsys.exit('no GPU here')\n", "(line 2): no GPU here; move"),
        (
            "import sys\nprint('Error: Missing option --data.', file=sys.stderr)\nsys.exit(2)\n",
            "(line 3): Missing option --data; move",
        ),
        ("import sys\nprint('bye', file=sys.stderr)\nsys.exit(3)\n", "(line 3): bye (exit code 3)"),
        ("raise SystemExit\n", "(line 1): exit code 0; move"),
        ("import nosuchmodule_\n", "'nosuchmodule_' (line 1); install 'nosuchmodule_', or set"),
        ("import above\n", "(line 1); it is in {folder}: set PYTHONPATH={folder}"),
        ("from types import Mine\n", "was imported instead of {folder}/deep/types: rename yours"),
        ("1 / 0\n", "raised ZeroDivisionError: division by zero (line 1)"),
        (
            "model = Net()\nmodel.fit()\n",
            "(line 1); net.py trains a model in line 2 whenever it is imported",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_names_a_remedy(
    write, loaded, tmp_path, capsys, lines, words
):
    write("above.py", "")
    write("deep/types.py", "Mine = 1")
    with pytest.raises(UserModelError) as raised:
        loaded(write("deep/net.py", lines, MODEL))
    assert words.replace("{folder}", str(tmp_path)) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "SystemExit" not in str(raised.value)


def test_a_factory_that_ends_the_program_is_reported(write, loaded):
    text = "import argparse\ndef create_model():\n    argparse.ArgumentParser().error('too few')\n"
    with pytest.raises(UserModelError, match=r"create_model\(\) ended .*\(line 3\): too few; give"):
        loaded(write("net.py", text)).make()


def test_partials_and_plain_example_inputs_are_taken(write, loaded):
    text = "import functools\ncreate_model = functools.partial(dict, a=1)\nexample_inputs = (1,)\n"
    brought = loaded(write("net.py", text))
    assert brought.make() == {"a": 1}
    assert brought.example_inputs() == (1,)


NET = "class Net(nn.Module):\n    def forward(self, x): return x\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from lib import Thing\ndef build(): return Thing()\n", "build"),
        ("def get_loader(): return []\ndef get_net(width=4): return nn.Sequential()\n", "get_net"),
        ("net = nn.Sequential(nn.Linear(3, 4)).eval()\nloss = nn.MSELoss()\n", "net"),
        ("def thing(): return 1\ndef main(): return 2\ndef apply(x): return x\n", "thing"),
        (f"{NET}class FocalLoss(nn.Module): ...\n", "Net"),
        (f"{NET}def create(): return Net()\n", "Net"),
        # The others are its parts, or need arguments.
        (f"{NET}class Whole(nn.Module):\n  def __init__(self): self.part = Net()\n", "Whole"),
        ("class Net(nn.Module):\n  def __init__(self, n): ...\nthe = Net(3)\n", "the"),
        ("class Net(nn.Module):\n  def __init__(self, n): ...\ndef f(): return Net(3)\n", "f"),
        ("class Base(nn.Module): ...\nclass Net(Base):\n  def forward(self, x): ...\n", "Net"),
        ("from base import Base\nclass Mine(Base):\n  def forward(self, x): ...\n", "Mine"),
        # Code that an import skips binds no name.
        (f"{NET}if __name__ == '__main__':\n    model = Net()\n", "Net"),
        ("import model\nnet = nn.Linear(2, 3)\n", "net"),
        (
            "try:\n    import fast\nexcept ImportError:\n    def model(): return nn.Linear(1, 1)\n",
            "model",
        ),
    ],
)
def test_the_only_model_that_can_be_meant_is_chosen(write, tmp_path, text, name):
    write("own.py", TORCH, INPUTS, text)
    assert chosen(tmp_path, "own.py") == name


def test_a_module_is_no_model(write, tmp_path):
    write("pack/model.py", "")
    write("pack/own.py", TORCH, "from . import model\n", INPUTS, NET)
    assert chosen(tmp_path, "pack/own.py") == "Net"
    write("pack/own.py", TORCH, "from .model import create_model, model\n", INPUTS, NET)
    assert chosen(tmp_path, "pack/own.py") == "create_model"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"{NET}{NET.replace('Net', 'Other')}",
            "pass one of 'my own.py:Net', 'my own.py:Other', or rename",
        ),
        ("def build_a(): return 1\ndef build_b(): return 2\n", "'my own.py:build_a', 'my own.py:"),
        (
            "class Net(nn.Module):\n  def __init__(self, n, *, m): ...\n",
            "none of these can be called without arguments: Net(n, m); write a function create_",
        ),
        ("def apply(x): return x\n", "pass 'my own.py:NAME', or write a function create_model()"),
        ("x = 1\n", "that returns the model (names in the file: nn, x)"),
        (
            "def main():\n    net = nn.Linear(2, 3)\nif __name__ == '__main__':\n    main()\n",
            "creates its model in main(); move line 5 into a function create_model()",
        ),
        (
            "if __name__ == '__main__':\n    net = nn.Sequential(\n      nn.Linear(2, 3))\n",
            'creates its model in the block `if __name__ == "__main__":`; move lines 5-6 into',
        ),
    ],
)
def test_several_models_are_listed_and_none_is_explained(write, tmp_path, text, words):
    write("my own.py", TORCH, INPUTS, text)
    message = refused(tmp_path, "my own.py")
    assert words in message
    assert "example_inputs" not in message
    assert "apply" not in message


def test_a_choice_among_several_models_is_reported(write, tmp_path):
    write("own.py", TORCH, INPUTS, f"{NET}the = nn.Sequential(nn.Linear(2, 3), Net())\n")
    (remark,) = find_cases("own.py", ModelOptions(folder=tmp_path)).remarks
    assert remark.endswith("Net is measured; to measure another one, pass own.py:the")


def test_a_function_of_jax_is_a_model_unless_it_takes_weights(write, tmp_path):
    write("own.py", "import jax\ndef apply(x, mask): return x\n", INPUTS)
    assert chosen(tmp_path, "own.py") == "apply"
    write("own.py", "import jax\ndef apply(params, x): return x\ndef init(key): ...\n", INPUTS)
    assert "returns the pair (apply, params)" in refused(tmp_path, "own.py")


TRAINING = f"""{TORCH}{NET}
model = nn.Linear(
    784, 10)
optimizer = torch.optim.SGD(model.parameters())
def step(x):
    model(x).sum().backward()
for x in range(3):
    step(x)
"""


@pytest.mark.parametrize("wanted", [{}, {"data_types": ("bf16",)}])
def test_training_in_another_type_is_refused(write, tmp_path, wanted):
    write("net.py", TORCH, 'DATA_TYPE = "bf16"\n', MODEL, "def loss(model, x): ...\n")
    message = refused(tmp_path, "net.py", framework="pt", test="train", **wanted)
    assert message == "-t train: only fp32 training is supported, not bf16; pass --dtype fp32"


def test_a_training_script_says_what_to_move(write, tmp_path):
    write("train.py", TRAINING)
    hint = "train.py trains a model in lines 11-12 whenever it is imported; move lines 6-7 into"
    message = refused(tmp_path, "train.py")
    assert "--input 'f32[batch,784]'; " in message
    assert hint in message
    (remark,) = find_cases(
        "train.py", ModelOptions(folder=tmp_path, inputs=("f32[1,784]",))
    ).remarks
    assert hint in remark
    # A factory may fit its model, and training below the guard is allowed.
    write("train.py", TRAINING.replace("for x in range(3):", "if __name__ == '__main__':"))
    assert "trains" not in refused(tmp_path, "train.py")


@pytest.mark.parametrize(
    ("layers", "forward", "words"),
    [
        ("self.a = nn.Linear(16, 4)", "return self.a(x)", "--input 'f32[batch,16]'"),
        ("self.a = nn.Linear(n * 2, 4)", "return self.a(x)", "--input 'f32[batch,16]'"),
        ("self.n = n; self.a = nn.Linear(N, 4)", "return F.relu(self.a(x))", "'f32[batch,7]'"),
        (
            "self.a = nn.Sequential(nn.Dropout(0.1), nn.Conv2d(3, 4, 3))",
            "x = self.a(x)\n        return x.view(1)",
            "--input 'f32[batch,3,HEIGHT,WIDTH]', with numbers for HEIGHT and WIDTH",
        ),
        ("self.a = nn.Embedding(100, 8)", "return self.a(x)", "'i64[batch,LENGTH]<100'"),
        ("self.a = nn.LSTM(5, 8, batch_first=True)", "return self.a(x)", "'f32[batch,LENGTH,5]'"),
        ("self.a = nn.GRU(5, 8)", "return self.a(x)", "'f32[LENGTH,batch,5]'"),
        ("self.a = Part(9)", "return self.a(x)", "--input 'f32[batch,9]'"),
        # Nothing is guessed.
        ("self.a = nn.Linear(16, 4)", "return self.a(x.flatten(1))", "e.g. f32[1,3,224,224]"),
        ("self.a = nn.Linear(unknown(), 4)", "return self.a(x)", "e.g. f32[1,3,224,224]"),
        ("self.a = nn.Linear(16, 4)", "x = f(x)\n        return self.a(x)", "e.g. f32[1,3,224"),
        ("self.a = nn.Transformer(16, 4)", "return self.a(x)", "e.g. f32[1,3,224,224]"),
    ],
)
def test_inputs_follow_from_the_first_layer_where_it_shows_them(
    write, tmp_path, layers, forward, words
):
    write(
        "net.py",
        TORCH,
        "import torch.nn.functional as F\nN = 7\n"
        "class Part(nn.Module):\n"
        "    def __init__(self, k): self.b = nn.Linear(k, 4)\n"
        "    def forward(self, h): return self.b(h)\n"
        "class Net(nn.Module):\n"
        f"    def __init__(self, n=8):\n        {layers}\n"
        f"    def forward(self, x, mask=None):\n        {forward}\n",
    )
    message = refused(tmp_path, "net.py:Net")
    assert "add a function example_inputs(), or pass --input (Net takes x, mask=None), " in message
    assert words in message
    assert ("cbs run net.py:Net" in message) == ("'" in words)


def test_other_sources_of_inputs_are_used(write, tmp_path):
    write(
        "net.py",
        TORCH,
        "class Net(nn.Module):\n"
        '    def forward(self, x: Float[Tensor, "batch seq 16"], y): ...\n'
        "class Wide(nn.Module):\n"
        "    def __init__(self, n): self.a = nn.Linear(in_features=n, out_features=2)\n"
        "    def forward(self, x): return self.a(x)\n"
        "def wide(): return Wide(n=12)\n"
        "class Named(nn.Module):\n"
        "    def __init__(self): self.a = nn.Embedding(9, 2)\n"
        "    def forward(self, *, ids, mask=None): return self.a(ids)\n"
        "def get_inputs(): ...\n",
    )
    message = refused(tmp_path, "net.py:Net")
    assert "example_inputs() (rename get_inputs), or" in message
    assert "--input 'f32[batch,SEQ,16]' --input 'TYPE[SIZES]', with numbers for SEQ" in message
    assert "cbs run net.py:wide --input 'f32[batch,12]'" in refused(tmp_path, "net.py:wide")
    assert "--input 'ids=i64[batch,LENGTH]<9', with numbers for L" in refused(
        tmp_path, "net.py:Named"
    )
    assert "net.py:Net (Net takes x: Float" in refused(tmp_path, "net.py")


def test_a_framework_may_be_imported_next_to_the_file(write, tmp_path):
    write("layers.py", "import jax\n")
    write("net.py", "from layers import model\n", INPUTS)
    (case,) = find_cases("net.py", ModelOptions(folder=tmp_path)).cases
    assert case.model.model_impl.framework_type.value == "jax"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("net.ipynb", "is a notebook; convert it with `jupyter nbconvert --to script net.ipynb`"),
        ("net.py:Net()", "did you mean net.py:Net?"),
        ("net.py::Net", "did you mean net.py:Net?"),
        ("cell.py", "cell.py:2: invalid Python: invalid syntax; remove this notebook command"),
    ],
)
def test_other_ways_to_name_a_model_are_answered(write, tmp_path, text, words):
    write("net.ipynb", "{}")
    write("cell.py", "import torch\n%matplotlib inline\n")
    write("net.py", MODEL)
    assert is_model(text)
    assert words in refused(tmp_path, text)
