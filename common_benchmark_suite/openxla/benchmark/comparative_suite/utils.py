"""Templates that expand one definition to many variants.

Texts of a template may contain `string.Template` fields, e.g. `EXAMPLE_FP32_PT_BATCH${batch_size}`;
every combination of the given sizes becomes one record.
"""

import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelArtifactType,
    ModelImplementation,
    ModelTestData,
    Parameters,
    ParameterValue,
)

Record = TypeVar("Record")
Key = TypeVar("Key")

BATCH_TAG = "batch-${batch_size}"
SEQLEN_TAG = "seqlen-${seq_len}"
GEN_TAG = "gen-${gen_len}"

# Names that the OpenXLA suite's definition files use.
MODELS_MODULE_PATH = "openxla.benchmark.models"
SEQ_LEN_TAG = SEQLEN_TAG
BATCH_SIZE_PARAM, SEQ_LEN_PARAM, GEN_SIZE_PARAM = "${batch_size}", "${seq_len}", "${gen_len}"


def BATCH_NAME(name: str) -> str:  # noqa: N802  # the OpenXLA suite's spelling
    """Returns the template for names of a model's batches."""
    return f"{name}_BATCH{BATCH_SIZE_PARAM}"


def SEQ_LEN_NAME(name: str) -> str:  # noqa: N802  # as above
    """Returns the template for names of a model's sequence lengths."""
    return f"{name}_SEQLEN{SEQ_LEN_PARAM}"


def GEN_NAME(name: str) -> str:  # noqa: N802  # as above
    """Returns the template for names of a model's generation lengths."""
    return f"{name}_GEN{GEN_SIZE_PARAM}"


def _plain(value: Any) -> Any:
    """Returns a value of a template with its `string.Template`s as plain text."""
    if isinstance(value, string.Template):
        return value.template
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@attrs.frozen(kw_only=True)
class ModelTemplate:
    """A `Model` whose texts may contain fields; a parameter that is only a field gets its value.

    Texts and `string.Template`s are equivalent.
    """

    name: str = attrs.field(converter=_plain)
    tags: Sequence[str] = attrs.field(default=(), converter=_plain)
    model_impl: ModelImplementation
    model_parameters: Parameters = attrs.field(factory=dict, converter=_plain)
    artifacts_dir_url: str | None = attrs.field(default=None, converter=_plain)
    exported_model_types: Sequence[ModelArtifactType] = ()


def build_models(
    template: ModelTemplate, axes: Mapping[str, Sequence[ParameterValue]]
) -> dict[tuple[ParameterValue, ...], Model]:
    """Returns one model for each combination of the axes' values, by that combination.

    Each axis fills the field of its name and becomes a parameter of its name; `${name}` in the URL
    is the model's name.

    Raises:
      DefinitionError: a field is unknown, or two combinations have the same name.
    """
    models: dict[tuple[ParameterValue, ...], Model] = {}
    for values in itertools.product(*axes.values()):
        fields = dict(zip(axes, values, strict=True))
        texts = _texts(fields)
        name = substitute(template.name, texts)
        given = {key: _value(item, texts) for key, item in template.model_parameters.items()}
        url = template.artifacts_dir_url
        models[values] = Model(
            name=name,
            tags=[substitute(tag, texts) for tag in template.tags],
            model_impl=template.model_impl,
            model_parameters={**given, **fields},
            artifacts_dir_url=substitute(url, {**texts, "name": name}) if url else None,
            exported_model_types=template.exported_model_types,
        )
    if len({model.name for model in models.values()}) < len(models):
        raise DefinitionError(f"template {template.name!r} gives several variants the same name")
    return models


def build_batch_models(template: ModelTemplate, batch_sizes: Sequence[int]) -> dict[int, Model]:
    """Returns a model for each batch size; the field is `${batch_size}`."""
    return _along("batch_size", template, batch_sizes)


def build_input_sequence_models(
    template: ModelTemplate, input_sequence_lengths: Sequence[int]
) -> dict[int, Model]:
    """Returns a model for each sequence length; the field is `${seq_len}`."""
    return _along("seq_len", template, input_sequence_lengths)


def build_gen_models(template: ModelTemplate, gen_sizes: Sequence[int]) -> dict[int, Model]:
    """Returns a model for each generation length; the field is `${gen_len}`."""
    return _along("gen_len", template, gen_sizes)


def build_benchmark_cases(
    models: Mapping[Key, Model],
    *,
    input_data: ModelTestData = testdata.INPUT_DATA_MODEL_DEFAULT,
    verify_parameters: Mapping[str, float] = MappingProxyType({}),
) -> dict[Key, BenchmarkCase]:
    """Returns the case of each model with the given input, by the model's key."""
    return {
        key: BenchmarkCase.build(
            model=model, input_data=input_data, verify_parameters=verify_parameters
        )
        for key, model in models.items()
    }


def build_input_set_cases(models: Sequence[Model]) -> list[BenchmarkCase]:
    """Returns the cases of models on the suite's further inputs: the short and the long one."""
    sets = (testdata.INPUT_DATA_SHORT, testdata.INPUT_DATA_LONG)
    return [BenchmarkCase.build(model=model, input_data=data) for model in models for data in sets]


# Functions of the OpenXLA suite, with its keywords; the axis of the models does not matter for
# their cases.


def build_batch_benchmark_cases(
    batch_models: Mapping[int, Model], batch_sizes: Sequence[int] | None = None, **more: Any
) -> dict[int, BenchmarkCase]:
    """Returns the cases of models by batch size; see `build_benchmark_cases`.

    Args:
      batch_models: models by batch size.
      batch_sizes: requested sizes; None for all.
      more: `input_data`, `verify_parameters`.

    Raises:
      DefinitionError: a size has no model.
    """
    return build_benchmark_cases(_of_sizes(batch_models, batch_sizes), **more)


def build_input_sequence_benchmark_cases(
    model_dict: Mapping[int, Model],
    input_sequence_lengths: Sequence[int] | None = None,
    **more: Any,
) -> dict[int, BenchmarkCase]:
    """Returns the cases of models by sequence length; see `build_batch_benchmark_cases`."""
    return build_benchmark_cases(_of_sizes(model_dict, input_sequence_lengths), **more)


def build_gen_benchmark_cases(
    model_dict: Mapping[int, Model], gen_sizes: Sequence[int] | None = None, **more: Any
) -> dict[int, BenchmarkCase]:
    """Returns the cases of models by generation length; see `build_batch_benchmark_cases`."""
    return build_benchmark_cases(_of_sizes(model_dict, gen_sizes), **more)


def collect(namespace: Mapping[str, Any], record: type[Record]) -> list[Record]:
    """Returns all records of a type in a module, including those in dictionaries and lists.

    With `ALL_MODELS = collect(globals(), Model)`, no entry can be forgotten; duplicates are
    removed.
    """
    records = _records_in(list(namespace.values()), record)
    return list({id(item): item for item in records}.values())


def substitute(template: str, fields: Mapping[str, object]) -> str:
    """Returns the template with its `${fields}` filled in.

    Raises:
      DefinitionError: the template contains an unknown field.
    """
    if "$" not in template:
        return template  # like most tags; listing any case makes a thousand of them
    try:
        return string.Template(template).substitute(fields)
    except (KeyError, ValueError) as error:
        raise DefinitionError(
            f"template {template!r}: unknown or malformed field {error}"
        ) from error


def _value(item: ParameterValue, fields: Mapping[str, ParameterValue]) -> ParameterValue:
    if not isinstance(item, str):
        return item
    field = item.removeprefix("${").removesuffix("}")
    return (
        fields[field] if item == f"${{{field}}}" and field in fields else substitute(item, fields)
    )


def _texts(fields: Mapping[str, ParameterValue]) -> Mapping[str, ParameterValue]:
    """Returns fields, and those with another name in the OpenXLA suite also by that name."""
    return {**fields, "gen_size": fields["gen_len"]} if "gen_len" in fields else fields


def _of_sizes(models: Mapping[int, Model], sizes: Sequence[int] | None) -> Mapping[int, Model]:
    if missing := [size for size in sizes or () if size not in models]:
        raise DefinitionError(
            f"no model of size {missing[0]}; choices are {', '.join(map(str, models))}"
        )
    return models if sizes is None else {size: models[size] for size in sizes}


def _along(axis: str, template: ModelTemplate, sizes: Sequence[int]) -> dict[int, Model]:
    models = build_models(template, {axis: sizes})
    return {size: models[(size,)] for size in sizes}


def _records_in(values: Any, record: type[Record]) -> Iterator[Record]:
    for value in values:
        if isinstance(value, record):
            yield value
        elif isinstance(value, Mapping):
            yield from _records_in(value.values(), record)
        elif isinstance(value, list | tuple):
            yield from _records_in(value, record)
