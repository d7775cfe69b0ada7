"""Shapes that folders of pytorch/benchmark have, each in a small folder that we wrote."""

import json

import pytest
from framework_process import run_script

pytestmark = pytest.mark.frameworks

HEAD = """
import os
from collections import UserDict
import torch
from torchbenchmark.util.model import BenchmarkModel, STEP_FN
"""
CURRENT = """
class Model(BenchmarkModel):
    DEFAULT_TRAIN_BSIZE = 4
    DEFAULT_EVAL_BSIZE = 4

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Linear(6, 6)
        self.x = torch.randn(self.batch_size, 6)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def get_module(self):
        return self.model, (self.x,)

    def eval(self):
        return (torch.tanh(self.model(self.x)),)

    def train(self):
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()
"""
# One folder each: its kind, and its differences from `CURRENT`.
FOLDERS = {
    "jit_without_default": CURRENT.replace(
        "device, batch_size=None", "device, jit, batch_size=None"
    ),
    "sparse_gradients": CURRENT.replace(
        "torch.nn.Linear(6, 6)", "torch.nn.EmbeddingBag(30, 6, sparse=True)"
    ).replace("torch.randn(self.batch_size, 6)", "torch.randint(0, 30, (self.batch_size, 6))"),
    "returns_not_implemented": CURRENT
    + "    def train(self):\n        return NotImplementedError('inference only')\n",
    # Only by its name does TorchBench keep gradients in inference.
    "maml": CURRENT
    + """
    def eval(self):
        out = self.model(self.x)
        (gradient,) = torch.autograd.grad(out.square().mean(), self.model.weight)
        return (torch.tanh(out @ gradient),)
""",
    # Two calls of its module differ; only by its name does TorchBench not compare them.
    "demucs": CURRENT.replace(
        "        self.optimizer",
        "        self.model, self.jit = torch.nn.Sequential(self.model, torch.nn.Dropout()), True\n"
        "        self.check_opt_vs_noopt_jit()\n        self.model.eval()\n        self.optimizer",
    ),
    "keeps_its_result": CURRENT
    + """
    kept = None

    def eval(self):
        if self.kept is None:
            self.kept = torch.tanh(self.model(self.x))
        return (self.kept,)
""",
    # It writes to the same memory each time, and computes each time.
    "keeps_its_memory": CURRENT.replace(
        "self.optimizer =", "self.out = torch.empty(4, 6)\n        self.optimizer ="
    )
    + """
    def eval(self):
        self.out.copy_(torch.tanh(self.model(self.x)))
        return (self.out,)
""",
    "looks_up_what_is_gone": CURRENT
    + "    def eval(self):\n        return torch.nn.functional.cbs_gone(self.x)\n",
    # It has no wider type, so a wider run would show no rounding.
    "in_double": CURRENT
    + """
    def get_module(self):
        self.x = torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6)
        return torch.nn.Identity(), (self.x,)

    def eval(self):
        return (torch.log(self.x) - torch.sqrt(self.x),)
""",
    # The iteration gives the module a number that get_module() does not show.
    "called_with_a_number": """
class Power(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 6)

    def forward(self, x, power=1, *, shift=0.0):
        return self.inner(x) ** power + shift
"""
    + CURRENT
    + """
    def get_module(self):
        self.model = Power() if not isinstance(self.model, Power) else self.model
        return self.model, (self.x,)

    def eval(self):
        return (self.model(self.x, 2, shift=0.5),)
""",
    "called_with_an_object": """
class Cache:
    seen = 0

class Counts(torch.nn.Linear):
    def forward(self, x, cache=None):
        return super().forward(x)
"""
    + CURRENT
    + """
    def get_module(self):
        self.model = Counts(6, 6) if not isinstance(self.model, Counts) else self.model
        return self.model, (self.x,)

    def eval(self):
        return (self.model(self.x, Cache()),)
""",
    # A buffer that the first step makes, and one that it makes longer, as observers do.
    "makes_buffers": """
class Makes(torch.nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(6))
        if not self.seen.numel():
            self.seen.resize_(6).copy_(x.detach().abs().mean(0))
        return super().forward(x * self.mask + self.seen)
"""
    + CURRENT.replace("torch.nn.Linear(6, 6)", "Makes()"),
    # As folders of 2020 were.
    "without_a_base": """
class Model:
    def __init__(self, device='cpu', jit=False):
        self.module = torch.nn.Linear(6, 6)
        self.x = torch.randn(4, 6)

    def get_module(self):
        return self.module, (self.x,)

    def eval(self, niter=1):
        for _ in range(niter):
            found = self.module(self.x)
        return (found,)
""",
    # One of its outputs is of single precision, so that there is a wider run: of that one.
    "partly_in_double": """
class Both(torch.nn.Module):
    def forward(self, x, y):
        return torch.log(y) - torch.sqrt(y), torch.tanh(x)
"""
    + CURRENT
    + """
    def get_module(self):
        self.model = Both()
        self.y = torch.linspace(1, 2, 24, dtype=torch.float64).reshape(4, 6)
        return self.model, (self.x, self.y)

    def eval(self):
        return self.model(self.x, self.y)
""",
    "module_alone": CURRENT + "    def get_module(self):\n        return self.model\n",
    "tokenizers_dictionary": CURRENT
    + "    def get_module(self):\n        return self.model, UserDict(input=self.x)\n",
    "one_number": CURRENT + "    def eval(self):\n        return (self.model(self.x).sum(),)\n",
    "names_single_precision": CURRENT
    + """
    def eval(self):
        half = torch.full((6,), 0.5, dtype=torch.float)
        return ((self.model(self.x.float()) * half.to(torch.float32)).float(),)
""",
    "draws": CURRENT
    + """
    def eval(self):
        noise = torch.bernoulli(torch.full_like(self.x, 0.5)) + torch.empty_like(self.x).normal_()
        noise = noise + torch.rand(6, out=torch.zeros(6)) + torch.randn(4, 6) + torch.normal(self.x)
        return (self.model(self.x + noise),)
""",
    # As pyhpc_isoneutral_mixing: counted on tensors without values, it ended the process.
    "scripted": """
@torch.jit.script
def lowest(x):
    return torch.min(x, torch.tensor([0.0], device=x.device))
"""
    + CURRENT
    + "    def eval(self):\n        return (lowest(self.model(self.x)),)\n",
    # As DCGAN's discriminator; statistics that move with each call are in no exported program.
    "in_training_mode": CURRENT
    + """
    def get_module(self):
        if not isinstance(self.model, torch.nn.Sequential):
            self.model = torch.nn.Sequential(self.model, torch.nn.BatchNorm1d(6))
        return self.model, (self.x,)

    def eval(self):
        return (self.model(self.x),)
""",
    # After one step, rounding changes the result: Adam takes a full step for zero gradients.
    "goes_far": CURRENT.replace("torch.nn.Linear(6, 6)", "torch.nn.Sequential(*layers)")
    .replace(
        "        self.model =",
        """        layers = []
        for _ in range(20):
            layers += [torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU()]
        self.model =""",
    )
    .replace("randn(self.batch_size, 6)", "randn(8, 64)")
    .replace("SGD(self.model.parameters(), lr=0.1)", "Adam(self.model.parameters(), lr=0.01)"),
    # As `higher` copies a module: all of its attributes, with separate weights.
    "trains_by_a_copy": CURRENT
    + """
    def train(self):
        twin = torch.nn.Linear(6, 6)
        for name, value in vars(self.model).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                setattr(twin, name, value)
        twin.load_state_dict({n: 3 * value for n, value in self.model.state_dict().items()})
        self.optimizer.zero_grad()
        scale = twin(self.x).detach().square().mean()
        (scale * self.model(self.x).square().mean()).backward()
        self.optimizer.step()
""",
    "constants": CURRENT + "    def eval(self):\n        return (torch.ones(3),)\n",
    "a_mask_of_ones": CURRENT
    + "    def eval(self):\n        return torch.ones(3), self.model(self.x), torch.ones(0)\n",
    # Training in one piece goes before the stages of the class that it extends.
    "trains_in_one_piece": CURRENT.replace("class Model(", "class Staged(").replace(
        "def train(", "def forward("
    )
    + """
    def backward(self, losses):
        raise RuntimeError("not a stage of this folder")

    optimizer_step = backward

class Model(Staged):
    def train(self):
        Staged.forward(self)
""",
    "of_2022": """
class Model(BenchmarkModel):
    def __init__(self, device=None, jit=False, train_bs=8, eval_bs=2, extra_args=[]):
        super().__init__()
        self.device, self.jit = device, jit
        self.model = torch.nn.Linear(6, 6)
        self.x, self.test_x = torch.randn(train_bs, 6), torch.randn(eval_bs, 6)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def get_module(self):
        return self.model, (self.test_x,)

    def train(self, niter=1, step_fn: STEP_FN = lambda: None):
        for _ in range(niter):
            with self.annotate_forward():
                loss = self.model(self.x).square().mean()
            with self.annotate_backward():
                self.optimizer.zero_grad()
                loss.backward()
            with self.annotate_optimizer():
                self.optimizer.step()
            step_fn()

    def eval(self, niter=1):
        self.model(self.test_x)
""",
    "sizes_by_test": CURRENT.replace("batch_size=None", "train_bs=8, eval_bs=2").replace(
        "batch_size=batch_size", "batch_size=train_bs if test == 'train' else eval_bs"
    ),
    # The constructor of the base class is not called, and no GPU is there.
    "returns_early": """
class Model(BenchmarkModel):
    def __init__(self, device=None, jit=False):
        self.device = device
        if device != "cuda":
            return

    def get_module(self):
        raise NotImplementedError("GPU only")

    def eval(self, niter=1):
        if self.device != "cuda":
            raise NotImplementedError()
""",
    # One module for training, which `get_module()` shows, and another for inference.
    "two_modules": """
class Model(BenchmarkModel):
    def __init__(self, device=None, jit=False):
        super().__init__()
        self.model, self.eval_model = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.x, self.eval_x = torch.randn(4, 6), torch.randn(2, 6)

    def get_module(self):
        return self.model, (self.x,)

    def set_eval(self):
        pass

    def eval(self, niter=1):
        self.eval_model(input=self.eval_x)
""",
    # `get_module()` returns a new object for each call, and nothing calls it.
    "wraps_its_module": CURRENT.replace(
        "class Model(",
        """class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)

class Model(""",
    ).replace("return self.model, (", "return Wrapper(self.model), ("),
    "calls_forward": CURRENT.replace("self.model(self.x)", "self.model.forward(self.x)"),
    # A cache that is not a buffer; an optimizer in the module; a schedule that counts.
    "keeps_a_state": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)
        self.cache = torch.zeros(6)
        self.meta = torch.optim.Adam(self.layer.parameters(), lr=0.01)

    def forward(self, x):
        with torch.no_grad():
            self.cache[:] = 0.5 * self.cache + x.mean(0).detach()
        return self.layer(x) + self.cache

class Settings(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self

class Schedule:
    def __init__(self, optimizer):
        self._optimizer, self.steps, self.settings = optimizer, 0, Settings(lr=0.1)

    def step(self):
        self.steps += 1
        self._optimizer.param_groups[0]["lr"] = self.settings.lr / self.steps
        self._optimizer.step()
"""
    + CURRENT.replace("torch.nn.Linear(6, 6)", "Net()")
    .replace("torch.optim.SGD(self.model.parameters(), lr=0.1)", "Schedule(self.model.meta)")
    .replace("self.optimizer.zero_grad()", "self.model.zero_grad()"),
    "generates": """
from torchbenchmark.util.framework.huggingface import model_factory, networks
TINY = {"d_kv": 8, "vocab_size": 64, **networks._t5(16, 1, 2, 16)}
model_factory.NETWORKS = {"hf_T5": networks.Network(networks.PAIRS, "T5Config", 8, 8, 1, TINY)}

class Model(model_factory.HuggingFaceGenerationModel):
    def __init__(self, test, device, jit=False, batch_size=None, extra_args=[]):
        super().__init__(name="hf_T5_generate", test=test, device=device, jit=jit,
                         batch_size=batch_size, extra_args=extra_args)
""",
    "gated_and_large": """
from torchbenchmark.util.framework.huggingface import model_factory, networks
LARGE = {"vocab_size": 10**9}
model_factory.NETWORKS = {"llama": networks.Network(networks.MASKED, "BertConfig", arguments=LARGE)}

class Model(model_factory.HuggingFaceModel, model_factory.HuggingFaceAuthMixin):
    DEFAULT_EVAL_BSIZE = 1

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        model_factory.HuggingFaceAuthMixin.__init__(self)
        super().__init__(name="llama", test=test, device=device, batch_size=batch_size)
""",
    "later_task": "from torchbenchmark.tasks import OTHER\nassert OTHER.NOT_YET_KNOWN\n" + CURRENT,
    # The missing item, and the party at fault.
    "data_not_there": "from torchbenchmark import DATA_PATH\nopen(DATA_PATH + '/coco/x')\n",
    "asks_for_install": "assert os.path.exists('/x'), 'please run install.py again.'\n",
    "sibling_not_there": "from torchbenchmark.models.not_beside.train import train\n",
    "wants_cuda": "torch.zeros(1).cuda()\n" + CURRENT,
    "wants_a_package": "import cbs_not_there.part\n" + CURRENT,
    "wants_what_lacks_a_package": "exec('import cbs_not_there', {'__name__': 'dance.floor'})\n"
    + CURRENT,
    "wants_what_is_built_for_pytorch": "import torchtext\n" + CURRENT,
    "wants_another_version": "from numpy import not_there\n" + CURRENT,
    "detector": """
from torchbenchmark.util.framework.detectron2.model_factory import Detectron2Model
class Model(Detectron2Model):
    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__("x.yaml", test=test, device=device, batch_size=batch_size)
""",
    "part_not_there": "from .missing import x\n" + CURRENT,
}
UNSUPPORTED = {
    ("returns_not_implemented", "train"): "inference only",
    ("data_not_there", "eval"): "data: .*coco/x does not exist",
    ("asks_for_install", "eval"): "data: please run install.py again",
    ("sibling_not_there", "eval"): "code from not_beside, but no folder not_beside is next to it",
    ("wants_cuda", "eval"): "needs an NVIDIA GPU",
    ("wants_a_package", "eval"): "cbs_not_there, imported by wants_a_package but not",
    ("wants_what_lacks_a_package", "eval"): "cbs_not_there, imported by package dance but not",
    ("wants_what_is_built_for_pytorch", "eval"): "version for .*pip install --no-deps torchtext",
    ("wants_another_version", "eval"): "needs a different version of package numpy",
    ("keeps_its_result", "eval"): "only in the first iteration and then returns the cached result",
    (
        "looks_up_what_is_gone",
        "eval",
    ): "a different version of package torch: module 'torch.nn.func",
    ("detector", "eval"): "needs package detectron2, which is not on a package index",
    ("gated_and_large", "eval"): "memory: [0-9]+ GiB needed",
    ("returns_early", "eval"): "raises NotImplementedError on cpu",
    ("generates", "train"): "cannot be trained",
    ("constants", "eval"): "returns only constants",
}
# With a batch size if one is given.
RIGHT = (
    ("jit_without_default", "train", 0),
    ("sparse_gradients", "train", 0),
    ("maml", "eval", 0),
    ("demucs", "eval", 0),
    ("keeps_its_memory", "eval", 0),
    ("called_with_a_number", "eval", 0),
    ("called_with_an_object", "eval", 0),
    ("makes_buffers", "train", 0),
    ("without_a_base", "eval", 0),
    ("partly_in_double", "eval", 0),
    ("module_alone", "eval", 0),
    ("tokenizers_dictionary", "eval", 0),
    ("one_number", "eval", 0),
    ("names_single_precision", "eval", 0),
    ("a_mask_of_ones", "eval", 0),
    ("trains_in_one_piece", "train", 0),
    ("of_2022", "eval", 3),
    ("of_2022", "train", 0),
    ("sizes_by_test", "eval", 0),
    ("two_modules", "eval", 0),
    ("wraps_its_module", "eval", 0),
    ("sizes_by_test", "train", 3),
    ("keeps_a_state", "eval", 0),
    ("keeps_a_state", "train", 0),
    ("generates", "eval", 0),
    ("later_task", "eval", 2),
    ("in_double", "eval", 0),
    ("draws", "eval", 0),
    ("scripted", "eval", 0),
    ("in_training_mode", "eval", 0),
    ("goes_far", "train", 0),
)
COMPILED = (
    ("two_modules", "eval"),
    ("trains_by_a_copy", "train"),
    ("wraps_its_module", "train"),
    ("calls_forward", "eval"),
    ("calls_forward", "train"),
)
SCRIPT = """
import json, re, sys
from pathlib import Path
import numpy as np, torch
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.analysis.verification.verification import verify
from comparative_benchmark.sources.torchbench.model import create_model
from comparative_benchmark.engine.worker.preparing import count_cost

place, scratch = Path(sys.argv[1]), Path(sys.argv[2])
right, refused, compiled = (json.loads(given) for given in sys.argv[3:])
torch.set_grad_enabled(False)

def saved(name, values):
    paths = [scratch / f"{name}-{at}.npy" for at in range(len(values))]
    for path, value in zip(paths, values):
        np.save(path, value)
    return paths

for name, test, size in right:
    model = create_model(folder=str(place / name), test=test, batch_size=size or None)
    inputs = model.preprocess(model.generate_default_inputs())
    truth, reference = (saved(n, v) for n, v in zip("tr", model.judged_by(inputs)))
    why = model.without_float64
    assert why is None or name in ("generates", "in_double"), why
    if name == "in_double":
        assert "already computes in float64" in why
        assert 0 < abs(np.load(truth[0]) - np.load(reference[0])).max() < 1e-14
    if name == "partly_in_double":
        assert why is None
        assert 0 < abs(np.load(truth[0]) - np.load(reference[0])).max() < 1e-14
    assert not size or inputs[0].shape[0] == size
    if name == "called_with_a_number":
        assert verify(
            saved("f", [v.numpy() for v in model.forward(*map(torch.as_tensor, inputs))]),
            truth,
            reference,
        ).passed
    if name in ("in_training_mode", "called_with_an_object"):
        try:
            model.forward(*map(torch.as_tensor, inputs))
        except UnsupportedError as error:
            assert ("buffers" if name == "in_training_mode" else "type Cache") in str(error)
        else:
            raise AssertionError(name)
    if name == "scripted":
        cost = count_cost("comparative_benchmark.pt_inductor.reference:cost", model, inputs)
        assert "TorchScript" in cost.flops_source, cost
    if name == "goes_far":
        due = np.load(truth[0])
        assert abs(np.load(reference[0]) - due).max() < 1e-2 * due.std()
    model.reside(inputs)
    for _ in range(3):
        handle = model.timed()
    outputs = [value.numpy().copy() for value in model.outputs_of(handle)]
    found = verify(saved("o", outputs), truth, reference)
    assert found.passed, (name, found.reason)
    outputs[0].reshape(-1)[-1] += 1
    assert not verify(saved("o", outputs), truth, reference).passed, name
    print(name, test, "right")

for name, test in compiled:
    model = create_model(folder=str(place / name), test=test)
    inputs = model.preprocess(model.generate_default_inputs())
    truth, reference = (saved(n, v) for n, v in zip("tr", model.judged_by(inputs)))
    model.reside(inputs)
    graphs = []
    with torch.enable_grad():
        count = lambda graph, _: graphs.append(graph) or graph
        model.compile_in_place(lambda part: torch.compile(part, backend=count))
        outputs = [value.numpy() for value in model.outputs_of(model.timed())]
    assert graphs, name
    assert verify(saved("o", outputs), truth, reference).passed, name
    if name == "two_modules":  # what is called is exported, too
        outputs = [value.numpy() for value in model.forward(*map(torch.as_tensor, inputs))]
        assert verify(saved("o", outputs), truth, reference).passed

for name, test, reason in refused:
    try:
        model = create_model(folder=str(place / name), test=test)
        model.judged_by(model.preprocess(model.generate_default_inputs()))
    except UnsupportedError as error:
        assert re.search(reason, str(error)), (name, str(error))
    else:
        raise AssertionError(name)

try:
    create_model(folder=str(place / "part_not_there"), test="eval")
except ModuleNotFoundError as error:
    print("its own fault:", error)
else:
    raise AssertionError("part_not_there")
"""


def test_each_runs_or_says_why_not(tmp_path, environment):
    place = tmp_path / "torchbenchmark" / "models"
    for name, text in FOLDERS.items():
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(HEAD + text)
    refused = [(name, test, reason) for (name, test), reason in UNSUPPORTED.items()]
    run_script(
        SCRIPT,
        [str(place), str(tmp_path), *map(json.dumps, (RIGHT, refused, COMPILED))],
        environment,
        framework="folder",
    )
