"""Cases of a directory in Hugging Face's format: `config.json` and weights."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.artifacts import user_inputs
from openxla.benchmark.artifacts.user_inputs import UserInputs
from openxla.benchmark.brought import pictures, texts
from openxla.benchmark.brought.refusals import refuse_substitute
from openxla.benchmark.brought.variants import Variant, model_name, variants
from openxla.benchmark.brought.wanted import BroughtError, Found, Wanted
from openxla.benchmark.comparative_suite import networks
from openxla.benchmark.comparative_suite.networks import Network
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import directories

_NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        network.module: network
        for network in (
            *(networks.BERT, networks.GPT2, networks.LLAMA, networks.GEMMA, networks.T5),
            *(networks.VIT, networks.RESNET, networks.EFFICIENTNET, networks.WHISPER),
            networks.SD_CLIP,
        )
    }
)
# By task: transformers' class that finds the model's own, and what the class's name ends in.
TASKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "feature-extraction": ("AutoModel", "Model"),
        "text-generation": ("AutoModelForCausalLM", "ForCausalLM"),
        "fill-mask": ("AutoModelForMaskedLM", "ForMaskedLM"),
        "text-classification": (
            "AutoModelForSequenceClassification",
            "ForSequenceClassification",
        ),
        "token-classification": ("AutoModelForTokenClassification", "ForTokenClassification"),
        "question-answering": ("AutoModelForQuestionAnswering", "ForQuestionAnswering"),
        "text2text-generation": ("AutoModelForSeq2SeqLM", "ForConditionalGeneration"),
        "image-classification": ("AutoModelForImageClassification", "ForImageClassification"),
        "automatic-speech-recognition": ("AutoModelForSpeechSeq2Seq", "ForConditionalGeneration"),
    }
)
_IN_TRANSFORMERS = "openxla.benchmark.brought.in_transformers"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_USUAL_SEQ_LEN = 128
_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def found(
    directory: Path, wanted: Wanted, given: UserInputs | None, *, hub_name: str | None = None
) -> Found:
    """Returns the cases of a directory's model.

    One that an architecture of ours covers is a case in PyTorch, JAX and TensorFlow, all with the
    directory's weights; any other one in PyTorch, through transformers.

    Args:
      directory: of the model.
      wanted: how it is to be run.
      given: the user's own inputs, if any.
      hub_name: where on the hub it comes from, `OWNER/NAME@COMMIT`; None for a user's own.

    Raises:
      BroughtError: there is no configuration or no weights, or they would have to be unpickled.
    """
    if wanted.inputs:
        raise BroughtError("directories do not accept --input; use --batch and --seq-len")
    _stays_inside(directory)
    _refuse_substitutes(directory, wanted)
    try:
        config = directories.read_config(directory)
        is_pickled, digest = _weights(directory, allow_code=wanted.allow_code)
    except DefinitionError as error:
        raise BroughtError(str(error)) from error
    wanted_class = _class(directory, config, wanted.task)
    why_not = directories.why_not_covered(config, wanted_class)
    if is_pickled:
        why_not = "its weights are pickled"
    makes = _Of(
        directory,
        config,
        digest,
        wanted.task,
        wanted_class,
        is_pickled=is_pickled,
        hub_name=hub_name,
    )
    own_type = _TYPES.get(str(config.get("dtype", config.get("torch_dtype"))), "fp32")
    cases = []
    for variant in variants(wanted, own_type):
        if why_not is None:
            cases += makes.covered(variant)
        else:
            cases.append(makes.through_transformers(variant))
    if why_not is None:
        remarks = _on_tensors(directory, config)
    else:
        remarks = [f"{directory.name} runs only in PyTorch: {why_not}"]
    # The network without its head may be covered, where it is not as a whole.
    rule = directories.RULES.get(str(config["model_type"]))
    if (
        why_not is not None
        and not is_pickled
        and rule
        and rule.classes[0].endswith("Model")
        and wanted.task is None
    ):
        remarks[0] += (
            "; with --task feature-extraction, it runs without its head in JAX and TensorFlow too"
        )
    if wanted.text is not None:
        if "vocab_size" not in config:
            raise BroughtError(f"--text: {directory.name} does not accept text")
        on_text = texts.on_text(cases, directory, config, wanted.folder / wanted.text)
        return Found(cases=on_text, remarks=remarks)
    if wanted.image is not None:
        on_image = pictures.on_image(cases, directory, config, wanted.folder / wanted.image)
        return Found(cases=on_image, remarks=remarks)
    return Found(cases=_on(cases, given, is_covered=why_not is None), remarks=remarks)


class _Of:
    """Makes the cases of one directory."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object],
        digest: str,
        task: str | None,
        wanted_class: str | None,
        *,
        is_pickled: bool,
        hub_name: str | None,
    ) -> None:
        self._directory, self._config = directory, config
        self._digest, self._task, self._class = digest, task, wanted_class
        self._is_pickled, self._hub_name = is_pickled, hub_name

    def covered(self, variant: Variant) -> list[BenchmarkCase]:
        """Returns the cases in all frameworks."""
        rule = directories.RULES[str(self._config["model_type"])]
        network = _NETWORKS[rule.architecture]
        return [
            self._case(
                variant,
                attrs.evolve(network.implementation(short), own_process=True),
                {"model_name": str(self._directory), "checkpoint": checkpoints.DIRECTORY},
            )
            for short in networks.FRAMEWORK_TYPES
        ]

    def through_transformers(self, variant: Variant) -> BenchmarkCase:
        """Returns the case in PyTorch."""
        implementation = ModelImplementation(
            name=f"{self._config['model_type']}.{self._class or self._task}".replace("-", "_"),
            tags=["brought"],
            framework_type=ModelFrameworkType.PYTORCH,
            module_path=_IN_TRANSFORMERS,
            own_process=True,
        )
        auto_class = TASKS[self._task][0] if self._task else self._class
        more: dict[str, str | bool] = {
            "source": str(self._directory),
            "model_class": str(auto_class),
        }
        if self._is_pickled:
            more["pickled"] = True
        return self._case(variant, implementation, more)

    def _case(
        self,
        variant: Variant,
        implementation: ModelImplementation,
        more: Mapping[str, str | bool],
    ) -> BenchmarkCase:
        parameters: dict[str, str | int] = {
            **more,
            "source_sha256": self._digest,
            "data_type": variant.data_type,
            "batch_size": variant.batch_size or 1,
        }
        if self._hub_name:
            parameters["hub"] = self._hub_name
        if self._task:
            parameters["task"] = self._task
        if variant.seq_len is not None or self._takes_text():
            parameters["seq_len"] = variant.seq_len or self._usual_length(implementation)
        model = Model(
            name=model_name([self._directory.name], implementation.framework_type, variant),
            tags=["brought"],
            model_impl=implementation,
            model_parameters=parameters,
        )
        return BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)

    def _takes_text(self) -> bool:
        return "vocab_size" in self._config

    def _usual_length(self, implementation: ModelImplementation) -> int:
        """Returns a length that the model's positions are enough for."""
        longest = None
        if implementation.architecture is not None:
            architecture = architectures.get(implementation.architecture)
            of_text = getattr(architecture, "longest", None)
            longest = of_text(architecture.config(str(self._directory))) if of_text else None
        else:
            keys = ("max_position_embeddings", "n_positions", "max_target_positions")
            known = [value for key in keys if isinstance(value := self._config.get(key), int)]
            # Some models use up positions before the first token.
            longest = max(1, known[0] // 2) if known else None
        return min(_USUAL_SEQ_LEN, longest or _USUAL_SEQ_LEN)


def _stays_inside(directory: Path) -> None:
    """Refuses files that are links to elsewhere; the hub's own cache is made of links to `blobs`.

    Raises:
      BroughtError: a file of the directory lies in another one.
    """
    root = directory.resolve()
    allowed = {root, root.parent.parent / "blobs"}
    for file in sorted(directory.glob("*")):
        if file.is_symlink() and not allowed.intersection(file.resolve().parents):
            raise BroughtError(
                f"{file} links to {file.resolve()}, outside the directory; replace the link with "
                "the file if it belongs to the model"
            )


def _refuse_substitutes(directory: Path, wanted: Wanted) -> None:
    """Refuses a directory if a file that is read holds a pointer or an error message."""
    names = [directories.CONFIG_FILE, directories.INDEX_FILE]
    names += [directories.TOKENIZER_FILE] * (wanted.text is not None)
    names += ["preprocessor_config.json"] * (wanted.image is not None)
    for name in names:
        if (directory / name).is_file():
            refuse_substitute(directory / name)


def _weights(directory: Path, *, allow_code: bool) -> tuple[bool, str]:
    """Returns whether the weights are pickled, and the digest of all that decides the model."""
    pickles = [directory / name for name in _PICKLES if (directory / name).is_file()]
    safe = (directories.WEIGHTS_FILE, directories.INDEX_FILE)
    if not any((directory / name).is_file() for name in safe) and pickles:
        refuse_substitute(pickles[0])
        if not allow_code:
            raise BroughtError(
                f"{pickles[0]} is a pickle, which can run code when loaded; save the model as "
                "safetensors, or pass --allow-code if you trust it"
            )
        shards = sorted(directory.glob("pytorch_model*.bin"))
        for shard in shards:
            refuse_substitute(shard)
        return True, directories.digest_of(directory, shards)
    files = directories.weight_files(directory)
    for file in files:
        refuse_substitute(file)
    try:
        from openxla.benchmark.models.safetensors_file import SafetensorsFile

        SafetensorsFile(*files)
    except (ValueError, OSError) as error:
        raise BroughtError(f"{directory}: {error}") from error
    return False, directories.digest_of(directory, files)


def _on_tensors(directory: Path, config: Mapping[str, object]) -> list[str]:
    from openxla.benchmark.brought.fitting import unused_tensors

    architecture = architectures.get(directories.RULES[str(config["model_type"])].architecture)
    files = directories.weight_files(directory)
    remark = unused_tensors(directory, files, architecture, architecture.config(str(directory)))
    return [remark] if remark else []


def _class(directory: Path, config: Mapping[str, object], task: str | None) -> str | None:
    """Returns the name of transformers' class; None where only transformers knows it."""
    named = config.get("architectures")
    own = str(named[0]) if isinstance(named, list) and named else None
    if task is None:
        if own is None:
            raise BroughtError(
                f"{directory}: config.json names no class in 'architectures'; pass --task with one "
                f"of {', '.join(TASKS)}"
            )
        return own
    if task not in TASKS:
        raise BroughtError(f"unknown task {task!r}; choices are {', '.join(TASKS)}")
    ending = TASKS[task][1]
    if own is not None and own.endswith(ending) and (ending != "Model"):
        return own
    rule = directories.RULES.get(str(config["model_type"]))
    for known in rule.classes if rule else ():
        if known.endswith(ending):
            return known
    return None


def _on(
    found: list[BenchmarkCase], given: UserInputs | None, *, is_covered: bool
) -> list[BenchmarkCase]:
    """Returns the cases on the user's own inputs, if there are any."""
    if given is None:
        return found
    if not is_covered:
        return [BenchmarkCase.build(model=case.model, input_data=given.data) for case in found]
    try:
        return user_inputs.cases_with(found, given)
    except user_inputs.UserInputError as error:
        raise BroughtError(f"--inputs: {error}") from error
