"""Cases of a directory in Hugging Face's format: `config.json` and weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.array_files import UserInputs
from openxla.benchmark.comparative_suite import families
from openxla.benchmark.comparative_suite.families import Network
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ModelTestData,
)
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.architectures import Architecture, directories
from openxla.benchmark.models.checkpoint_tensors import SafetensorsFile, some_names
from openxla.benchmark.user_models.hugging_face import companion_formats, real_inputs, usual_inputs
from openxla.benchmark.user_models.hugging_face.companion_formats import Adapter, Pipeline
from openxla.benchmark.user_models.model_options import (
    InputSpec,
    ModelCases,
    ModelOptions,
    UserModelError,
    Variant,
    check_spec_names,
    model_name,
    parse_spec,
    recorded_specs,
    variants,
)
from openxla.benchmark.user_models.refusals import refuse_substitute

# Task -> the transformers class that loads the model, and the suffix of the class's name.
TASKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "feature-extraction": ("AutoModel", "Model"),
        "text-generation": ("AutoModelForCausalLM", "ForCausalLM"),
        "fill-mask": ("AutoModelForMaskedLM", "ForMaskedLM"),
        "text-classification": ("AutoModelForSequenceClassification", "ForSequenceClassification"),
        "token-classification": ("AutoModelForTokenClassification", "ForTokenClassification"),
        "question-answering": ("AutoModelForQuestionAnswering", "ForQuestionAnswering"),
        "text2text-generation": ("AutoModelForSeq2SeqLM", "ForConditionalGeneration"),
        "image-classification": ("AutoModelForImageClassification", "ForImageClassification"),
        "automatic-speech-recognition": ("AutoModelForSpeechSeq2Seq", "ForConditionalGeneration"),
    }
)
_IN_TRANSFORMERS = "openxla.benchmark.user_models.hugging_face.in_transformers"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_SAFE = (directories.WEIGHTS_FILE, directories.INDEX_FILE)
_OF_SENTENCES = "sentence_embedding"
_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}

_NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        network.module: network
        for network in (
            *(families.BERT, families.GPT2, families.LLAMA, families.GEMMA, families.T5),
            *(families.VIT, families.RESNET, families.EFFICIENTNET, families.WHISPER),
            families.SD_CLIP,
        )
    }
)


def unused_tensors(
    directory: Path, files: Sequence[Path], architecture: Architecture, config: Mapping[str, Any]
) -> str | None:
    """Returns a remark on tensors that no framework of the suite uses; None if all are used.

    Args:
      directory: path of the model.
      files: its weight files.
      architecture: the architecture that covers the model.
      config: its configuration, with the keys of our implementations.

    Raises:
      UserModelError: tensors are missing or have another shape; the message names them. Otherwise
        each framework would report this differently, after a worker has read the other tensors.
    """
    file = SafetensorsFile(*files).renamed(architecture.canonical_weight_name)
    known = {init.name: init for init in architecture.tensors(config)}
    needed = [
        init
        for name, init in known.items()
        if init.dtype != "I64" and not name.startswith(architecture.unused_tensors)
    ]
    missing = [init.name for init in needed if init.name not in file]
    if missing:
        raise UserModelError(
            f"{directory} lacks {len(missing)} of {len(needed)} tensors that its config.json "
            f"requires: {some_names(missing)}"
        )
    mismatched = [
        f"{init.name} is {_size(shape)}, expected {_size(init.shape)}"
        for init in needed
        if (shape := file.shape(init.name)) != init.shape
    ]
    if mismatched:
        raise UserModelError(
            f"{directory} has tensors that do not match its config.json: {some_names(mismatched)}"
        )
    if unused := [name for name in file if name not in known]:
        return f"{directory.name} has unused tensors: {some_names(unused)}"
    return None


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def cases_of(
    directory: Path, wanted: ModelOptions, given: UserInputs | None, *, hub_name: str | None = None
) -> ModelCases:
    """Returns the cases of a directory's model.

    If one of our architectures covers the model, it becomes a case in PyTorch, JAX and TensorFlow,
    all with the directory's weights. Other models run in PyTorch, through transformers.

    Args:
      directory: path of the model.
      wanted: options of the run.
      given: the user's own inputs, if any.
      hub_name: its source on the hub, `OWNER/NAME@COMMIT`; None for a local directory.

    Raises:
      UserModelError: configuration or weights are missing, or the weights are pickled.
    """
    named = _named(wanted.inputs)
    model = _read(directory, wanted)
    if wanted.seq_lens and not named and _takes_pictures_alone(model.config):
        raise UserModelError(
            f"--seq-len: {directory.name} takes images, which have no sequence length"
        )
    wanted_class = _class(model, wanted.task)
    why_not = model.why_not_covered(wanted_class)
    if why_not is None and named:
        why_not = "--input uses the argument names of its PyTorch module"
    makes = _Of(model, wanted.task, wanted_class, hub_name=hub_name)
    own_type = _TYPES.get(str(model.config.get("dtype", model.config.get("torch_dtype"))), "fp32")
    cases = []
    for variant in variants(wanted, own_type):
        if why_not is None:
            cases += makes.covered(variant)
        else:
            cases.append(makes.through_transformers(variant, named))
    remarks = _remarks(model, wanted, why_not)
    config = model.config
    if wanted.text is not None:
        if "vocab_size" not in config:
            raise UserModelError(f"--text: {directory.name} does not accept text")
        on_text = real_inputs.on_text(
            cases, model.tokenizer_folder(), config, wanted.folder / wanted.text
        )
        return ModelCases(cases=on_text, remarks=remarks)
    if wanted.image is not None:
        on_image = real_inputs.on_image(cases, directory, config, wanted.folder / wanted.image)
        return ModelCases(cases=on_image, remarks=remarks)
    return ModelCases(cases=_cases_on(cases, given, is_covered=why_not is None), remarks=remarks)


@attrs.frozen(kw_only=True)
class _Directory:
    """The parts of a directory.

    Attributes:
      directory: path that the user gave.
      home: folder with configuration and weights: the directory itself, its transformer, or an
        adapter's base.
      config: the content of its `config.json`.
      digest: sha256 of all parts.
      is_pickled: whether weights have to be unpickled.
      pipeline: pipeline of a sentence-transformers directory, unless `--task` omits it.
      adapter: adapter that is merged into the weights.
      left_out: the pipeline that `--task` omits.
    """

    directory: Path
    home: Path
    config: Mapping[str, object]
    digest: str
    is_pickled: bool
    pipeline: Pipeline | None
    adapter: Adapter | None
    left_out: Pipeline | None

    def why_not_covered(self, wanted_class: str | None) -> str | None:
        """Returns why the model runs in PyTorch only; None if all frameworks run it."""
        if self.pipeline is not None:
            return f"it is a sentence-transformers pipeline ({self.pipeline})"
        if self.adapter is not None:
            return f"its LoRA adapter is merged into {self.home.name}"
        if self.is_pickled:
            return "its weights are pickled"
        return directories.why_not_covered(self.config, wanted_class)

    def tokenizer_folder(self) -> Path:
        """Returns the tokenizer's folder; the directory's own tokenizer takes precedence."""
        folders = (self.directory, self.pipeline.transformer if self.pipeline else self.directory)
        has_one = (folder for folder in folders if (folder / directories.TOKENIZER_FILE).is_file())
        return next(has_one, self.home)


def _read(directory: Path, wanted: ModelOptions) -> _Directory:
    """Returns the parts of a directory.

    Raises:
      UserModelError: a part is missing, malformed, or would have to be unpickled.
    """
    _stays_inside(directory)
    pipeline = companion_formats.read_pipeline(directory, allow_code=wanted.allow_code)
    home = pipeline.transformer if pipeline else directory
    for folder in {home, *(file.parent for file in (pipeline.files if pipeline else ()))}:
        if folder != directory:
            _stays_inside(folder, directory)
    adapter = companion_formats.read_adapter(home)
    if adapter is None and wanted.base is not None:
        raise UserModelError(
            f"--base requires a LoRA adapter, but {home} has no {companion_formats.ADAPTER_FILE}"
        )
    if adapter is not None:
        if any((home / name).is_file() for name in (*_SAFE, *_PICKLES)):
            raise UserModelError(
                f"{home} contains a model and an adapter; move {companion_formats.ADAPTER_FILE} "
                "and its weights to another directory"
            )
        home = adapter.base(None if wanted.base is None else wanted.folder / wanted.base)
        _stays_inside(home)
        companion_formats.check_weights(adapter)
    for folder in {directory, home}:
        _refuse_substitutes(folder, wanted)
    whole = pipeline if wanted.task is None else None
    try:
        config = directories.read_config(home)
        is_pickled, digest = parts_of(directory, home, whole, adapter, allow_code=wanted.allow_code)
    except DefinitionError as error:
        raise UserModelError(str(error)) from error
    if pipeline is not None and whole is None and home != directory:
        directory = pipeline.transformer
    return _Directory(
        directory=directory,
        home=home,
        config=config,
        digest=digest,
        is_pickled=is_pickled,
        pipeline=whole,
        adapter=adapter,
        left_out=None if whole else pipeline,
    )


def parts_of(
    directory: Path,
    home: Path,
    pipeline: Pipeline | None,
    adapter: Adapter | None,
    *,
    allow_code: bool,
) -> tuple[bool, str]:
    """Returns whether weights have to be unpickled, and the sha256 of all parts of a model.

    Args:
      directory: path of the model.
      home: folder with configuration and weights.
      pipeline: its pipeline, if that runs.
      adapter: its adapter, if any.
      allow_code: whether to accept weights that can hold code.

    Raises:
      DefinitionError: weights are missing or malformed, or would have to be unpickled.
    """
    is_pickled, digest = _weights(home, allow_code=allow_code)
    if adapter is not None:
        digest = adapter.digest(digest)
    if pipeline is not None:
        digest = pipeline.digest(directory, digest)
        is_pickled = is_pickled or pipeline.is_pickled
    return is_pickled, digest


def _remarks(model: _Directory, wanted: ModelOptions, why_not: str | None) -> list[str]:
    """Returns remarks on the frameworks and weights of a model."""
    name = model.directory.name
    remarks = []
    if model.left_out is not None:
        remarks.append(f"{name} runs without its pipeline ({model.left_out}) because of --task")
    if why_not is None:
        return remarks + _on_tensors(model.home, model.config)
    remarks.append(f"{name} runs only in PyTorch: {why_not}")
    # Our architectures may cover the network without its head, or its pipeline, but not the whole.
    rule = directories.RULES.get(str(model.config["model_type"]))
    if (
        not (model.is_pickled or model.adapter or wanted.inputs)
        and rule
        and rule.classes[0].endswith("Model")
        and wanted.task is None
    ):
        without = "pipeline" if model.pipeline is not None else "head"
        remarks[-1] += (
            f"; with --task feature-extraction, it also runs in JAX and TensorFlow, but without "
            f"its {without}"
        )
    return remarks


class _Of:
    """Makes the cases of one directory."""

    def __init__(
        self, model: _Directory, task: str | None, wanted_class: str | None, *, hub_name: str | None
    ) -> None:
        self._model, self._config = model, model.config
        self._task, self._class, self._hub_name = task, wanted_class, hub_name

    def covered(self, variant: Variant) -> list[BenchmarkCase]:
        """Returns the cases in all frameworks."""
        rule = directories.RULES[str(self._config["model_type"])]
        network = _NETWORKS[rule.architecture]
        return [
            self._case(
                variant,
                attrs.evolve(network.implementation(short), own_process=True),
                {"model_name": str(self._model.home), "checkpoint": checkpoints.DIRECTORY},
            )
            for short in families.FRAMEWORK_TYPES
        ]

    def through_transformers(self, variant: Variant, named: Sequence[InputSpec]) -> BenchmarkCase:
        """Returns the case in PyTorch.

        Args:
          variant: data type, batch size and length.
          named: the inputs that the user describes, by name.
        """
        model = self._model
        auto_class = self._class or TASKS[str(self._task)][0]
        more: dict[str, str | bool] = {"source": str(model.directory), "model_class": auto_class}
        kind = str(self._class or self._task)
        if model.adapter is not None:
            more["base"] = str(model.home)
            kind += ".LoRA"
        if model.pipeline is not None:
            more["pipeline"] = str(model.pipeline)
            kind = ".".join([kind, *(stage.kind for stage in model.pipeline.stages)])
        if model.is_pickled:
            more["pickled"] = True
        sizes = variant.batch_size or 1, variant.seq_len
        filled = [spec.filled(*sizes) for spec in named]
        if named:
            more |= recorded_specs(named, filled)
        implementation = ModelImplementation(
            name=f"{self._config['model_type']}.{kind}".replace("-", "_"),
            tags=["brought"],
            framework_type=ModelFrameworkType.PYTORCH,
            module_path=_IN_TRANSFORMERS,
            own_process=True,
        )
        return self._case(variant, implementation, more, filled)

    def _case(
        self,
        variant: Variant,
        implementation: ModelImplementation,
        more: Mapping[str, str | bool],
        inputs: Sequence[InputSpec] = (),
    ) -> BenchmarkCase:
        parameters: dict[str, str | int] = {
            **more,
            "source_sha256": self._model.digest,
            "data_type": variant.data_type,
            "batch_size": variant.batch_size or 1,
        }
        if self._hub_name:
            parameters["hub"] = self._hub_name
        if self._task:
            parameters["task"] = self._task
        if variant.seq_len is not None or self._takes_text():
            parameters["seq_len"] = variant.seq_len or self._usual_length(implementation)
        parts = [self._model.directory.name]
        if self._model.pipeline is not None:
            parts.append(_OF_SENTENCES)
        model = Model(
            name=model_name(parts, implementation.framework_type, variant),
            tags=["brought"],
            model_impl=implementation,
            model_parameters=parameters,
        )
        data = testdata.INPUT_DATA_MODEL_DEFAULT
        if inputs:
            data = ModelTestData(
                name="_".join(f"{spec.name}_{spec.spec}".upper() for spec in inputs),
                source_url="",
                source_info="Random numbers described by --input.",
            )
        return BenchmarkCase.build(model=model, input_data=data)

    def _takes_text(self) -> bool:
        # Speech models have a vocabulary for transcripts.
        return "vocab_size" in self._config and "conv_stride" not in self._config

    def _usual_length(self, implementation: ModelImplementation) -> int:
        """Returns a length that fits the model's positions."""
        longest = None
        if implementation.architecture is not None:
            architecture = architectures.get(implementation.architecture)
            of_text = getattr(architecture, "longest", None)
            longest = of_text(architecture.config(str(self._model.home))) if of_text else None
        else:
            keys = ("max_position_embeddings", "n_positions", "max_target_positions")
            known = [value for key in keys if isinstance(value := self._config.get(key), int)]
            # Some models use positions before the first token.
            longest = max(1, known[0] // 2) if known else None
        return min(usual_inputs.USUAL_SEQ_LEN, longest or usual_inputs.USUAL_SEQ_LEN)


def _named(texts: Sequence[str]) -> list[InputSpec]:
    """Returns the inputs that a user describes, each with the name of its argument.

    Raises:
      UserModelError: an input has no name, or is malformed.
    """
    given = [parse_spec(text) for text in texts]
    if unnamed := [str(spec) for spec in given if not spec.name]:
        raise UserModelError(
            f"--input {unnamed[0]!r}: inputs of a Hugging Face directory need the name of the "
            f"argument, e.g. 'input_ids={unnamed[0]}'"
        )
    check_spec_names(given)
    return given


def _stays_inside(directory: Path, root: Path | None = None) -> None:
    """Refuses links to files outside the directory, except into `blobs` of the hub's cache.

    Args:
      directory: directory to check.
      root: root of the model; None if it is the directory itself.

    Raises:
      UserModelError: a file of the directory is stored in another one.
    """
    root = (root or directory).resolve()
    allowed = {root, root.parent.parent / "blobs"}
    for file in sorted(directory.glob("*")):
        if file.is_symlink() and not allowed.intersection(file.resolve().parents):
            raise UserModelError(
                f"{file} links to {file.resolve()}, outside the directory; replace the link with "
                "the file if it belongs to the model"
            )


def _refuse_substitutes(directory: Path, wanted: ModelOptions) -> None:
    """Refuses a directory if a file to be read holds a pointer or an error message."""
    names = [directories.CONFIG_FILE, directories.INDEX_FILE]
    names += [directories.TOKENIZER_FILE] * (wanted.text is not None)
    names += ["preprocessor_config.json"] * (wanted.image is not None)
    for name in names:
        if (directory / name).is_file():
            refuse_substitute(directory / name)


def _takes_pictures_alone(config: Mapping[str, object]) -> bool:
    """Returns whether a configuration has sizes of pictures, but none of texts or sounds."""
    if any(isinstance(part, Mapping) for key, part in config.items() if key.endswith("_config")):
        return False
    other = {"vocab_size", "max_position_embeddings", "num_mel_bins", "sampling_rate", "num_frames"}
    return "num_channels" in config and other.isdisjoint(config)


def _weights(directory: Path, *, allow_code: bool) -> tuple[bool, str]:
    """Returns whether weights are pickled, and the digest of all files that define the model."""
    pickles = [directory / name for name in _PICKLES if (directory / name).is_file()]
    if not any((directory / name).is_file() for name in _SAFE) and pickles:
        refuse_substitute(pickles[0])
        if not allow_code:
            raise UserModelError(
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
        SafetensorsFile(*files)
    except (ValueError, OSError) as error:
        raise UserModelError(f"{directory}: {error}") from error
    return False, directories.digest_of(directory, files)


def _on_tensors(directory: Path, config: Mapping[str, object]) -> list[str]:

    architecture = architectures.get(directories.RULES[str(config["model_type"])].architecture)
    files = directories.weight_files(directory)
    remark = unused_tensors(directory, files, architecture, architecture.config(str(directory)))
    return [remark] if remark else []


def _class(model: _Directory, task: str | None) -> str | None:
    """Returns the name of the transformers class; None if only transformers can determine it."""
    config = model.config
    named = config.get("architectures")
    own = str(named[0]) if isinstance(named, list) and named else None
    if task is None:
        if model.pipeline is not None:
            return "AutoModel"
        if model.adapter is not None and (of_adapter := model.adapter.model_class()):
            return of_adapter
        if own is None:
            raise UserModelError(
                f"{model.home}: config.json lists no class in 'architectures'; pass --task with "
                f"one of {', '.join(TASKS)}"
            )
        return own
    if task not in TASKS:
        raise UserModelError(f"unknown task {task!r}; choices are {', '.join(TASKS)}")
    ending = TASKS[task][1]
    if own is not None and own.endswith(ending) and (ending != "Model"):
        return own
    rule = directories.RULES.get(str(config["model_type"]))
    for known in rule.classes if rule else ():
        if known.endswith(ending):
            return known
    return None


def _cases_on(
    cases: list[BenchmarkCase], given: UserInputs | None, *, is_covered: bool
) -> list[BenchmarkCase]:
    """Returns the cases on the user's own inputs, if there are any."""
    if given is None:
        return cases
    if not is_covered:
        return [BenchmarkCase.build(model=case.model, input_data=given.data) for case in cases]
    try:
        return array_files.cases_with(cases, given)
    except array_files.UserInputError as error:
        raise UserModelError(f"--inputs: {error}") from error
