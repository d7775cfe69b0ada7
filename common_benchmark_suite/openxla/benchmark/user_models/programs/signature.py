"""Signatures of exported programs, and the inputs chosen for them."""

from collections.abc import Iterable, Sequence

import attrs

from openxla.benchmark.user_models.model_options import (
    BATCH,
    SEQ,
    TYPES,
    InputSpec,
    UserModelError,
    check_spec_names,
    parse_spec,
    range_of,
)

# Names that exporters give to a dynamic batch size.
_BATCH_NAMES = ("n", "b", "bs", "bsz")
_SEQ_NAMES = ("s", "t", "tokens")
_FEW = 2


@attrs.frozen(kw_only=True)
class Argument:
    """One input of a program.

    Attributes:
      name: its name in the program.
      element_type: e.g. `f32`.
      sizes: numbers; names of dynamic sizes, None for a dynamic size without a name.
      below: exclusive limit of integers that index a table; None if unknown.
    """

    name: str
    element_type: str
    sizes: tuple[int | str | None, ...]
    below: int | None = None

    def __str__(self) -> str:
        sizes = ",".join("?" if size is None else str(size) for size in self.sizes)
        return f"{self.name} {self.element_type}[{sizes}]"


@attrs.frozen(kw_only=True)
class Signature:
    """The inputs of a program, in order.

    Attributes:
      where: name of the program in messages.
      arguments: its inputs.
    """

    where: str
    arguments: tuple[Argument, ...]

    @classmethod
    def of(
        cls, where: str, tensors: Iterable[tuple[str, str | None, tuple[int | str | None, ...]]]
    ) -> "Signature":
        """Returns the signature of inputs given by name, element type and sizes.

        Raises:
          UserModelError: the suite does not support the type of an input.
        """
        arguments = [
            Argument(name=name, element_type=element_type_or_refuse(name, kind, where), sizes=sizes)
            for name, kind, sizes in tensors
        ]
        return cls(where=where, arguments=tuple(arguments))

    def inputs(
        self, written: Sequence[str], batch: int | None, seq: int | None
    ) -> tuple[InputSpec, ...]:
        """Returns the inputs to run the program on, with all sizes as numbers.

        Args:
          written: the user's inputs, one per argument; empty for the program's defaults.
          batch: size of batch dimensions; None for 1.
          seq: size of sequence dimensions; None if unspecified.

        Raises:
          UserModelError: the program takes other inputs, or the size of an input is unknown.
        """
        if written:
            names = [argument.name for argument in self.arguments]
            given = _in_order([parse_spec(text) for text in written], names, names, self)
            self.check(given)
        else:
            given = [self._default(argument) for argument in self.arguments]
        used = {size for spec in given for size in spec.sizes}
        for option, name, value in (("--batch", BATCH, batch), ("--seq-len", SEQ, seq)):
            if value is not None and name not in used:
                raise UserModelError(f"{option}: no input has a size {name!r}: {self}")
        if seq is None and not written and SEQ in used:
            raise UserModelError(f"{self}; set {SEQ!r} with --seq-len")
        filled = tuple(spec.filled(batch or 1, seq) for spec in given)
        self.check(filled)
        return filled

    def __str__(self) -> str:
        return f"{self.where} takes {', '.join(map(str, self.arguments)) or 'nothing'}"

    def check(self, given: Sequence[InputSpec]) -> None:
        """Raises UserModelError if inputs do not match; sizes with one name must be equal."""
        if len(given) != len(self.arguments):
            raise UserModelError(f"{self}; pass --input once for each input (got {len(given)})")
        sizes: dict[str, int] = {}
        for spec, argument in zip(given, self.arguments, strict=True):
            if spec.element_type != argument.element_type:
                raise UserModelError(f"--input {spec} has the wrong type: {self}")
            if len(spec.sizes) != len(argument.sizes):
                raise UserModelError(f"--input {spec} has the wrong number of sizes: {self}")
            for size, expected in zip(spec.sizes, argument.sizes, strict=True):
                if not isinstance(size, int) or expected is None:
                    continue
                known = sizes.setdefault(expected, size) if isinstance(expected, str) else expected
                if size != known:
                    name = f"{expected!r} to be " if isinstance(expected, str) else ""
                    raise UserModelError(
                        f"--input {spec}: expected {name}{known}, got {size}: {self}"
                    )

    def _default(self, argument: Argument) -> InputSpec:
        """Returns the default input of an argument."""
        sizes = tuple(
            size if isinstance(size, int) else self._role(argument, size, axis)
            for axis, size in enumerate(argument.sizes)
        )
        spec = InputSpec(element_type=argument.element_type, sizes=sizes)
        if argument.element_type[0] not in "iu" or argument.element_type == "i1":
            return spec
        if "mask" in argument.name.lower():
            return attrs.evolve(spec, value="1")
        # Without a known range, use 0 and 1, which are valid rows of any table.
        below = min(argument.below or _FEW, range_of(argument.element_type).stop)
        return attrs.evolve(spec, below=below)

    def _role(self, argument: Argument, size: str | None, axis: int) -> str:
        """Returns whether a size is the batch size or the length, which users can set."""
        name = (size or "").lower()
        if "batch" in name or name in _BATCH_NAMES:
            return BATCH
        if "seq" in name or "len" in name or name in _SEQ_NAMES:
            return SEQ
        if axis == 0:
            return BATCH
        written = ",".join("..." if not isinstance(s, int) else str(s) for s in argument.sizes)
        raise UserModelError(
            f"{self}; give the size of {argument.name} with --input "
            f"'{argument.element_type}[{written}]'"
        )


@attrs.frozen(kw_only=True)
class NamedInputs:
    """The inputs of a program that records only their names.

    Attributes:
      where: name of the program in messages.
      names: its tensor inputs, in order.
      required: how many of them have no default.
      shape: of the first input, if the program records it.
      are_inside: whether the file contains input arrays.
    """

    where: str
    names: tuple[str, ...]
    required: int
    shape: tuple[int, ...] | None = None
    are_inside: bool = False

    def inputs(
        self, written: Sequence[str], batch: int | None, seq: int | None
    ) -> tuple[InputSpec, ...]:
        """Returns the inputs; empty if the program runs on the arrays in its file.

        Raises:
          UserModelError: no inputs are given, or too few or too many.
        """
        first = self.names[: len(written)]
        given = _in_order([parse_spec(text) for text in written], self.names, first, self)
        if not written and self.shape is not None:
            given = [InputSpec(element_type="f32", sizes=self.shape)]
        if given or not self.are_inside:
            self.check(given)
        used = {size for spec in given for size in spec.sizes}
        for option, name, value in (("--batch", BATCH, batch), ("--seq-len", SEQ, seq)):
            if value is not None and name not in used:
                raise UserModelError(f"{option}: no --input has a size {name!r}: {self}")
        return tuple(spec.filled(batch or 1, seq) for spec in given)

    def __str__(self) -> str:
        named = [*self.names[: self.required], *(f"[{n}]" for n in self.names[self.required :])]
        return f"{self.where} takes {', '.join(named) or 'nothing'}"

    def check(self, given: Sequence[InputSpec]) -> None:
        """Raises UserModelError if there are too few or too many inputs."""
        if not self.required <= len(given) <= len(self.names):
            example = f"(e.g. --input 'f32[{BATCH},3,224,224]')"
            raise UserModelError(
                f"{self} (types and sizes unknown); pass --input once for each input {example}, "
                f"but got {len(given)}"
            )


def _in_order(
    given: list[InputSpec], names: Sequence[str], needed: Sequence[str], takes: object
) -> list[InputSpec]:
    """Returns inputs in the order of the arguments, without names.

    Args:
      given: the user's inputs.
      names: names of all arguments.
      needed: names that must be given if any is.
      takes: the signature, for messages.
    """
    check_spec_names(given)
    named = {spec.name: attrs.evolve(spec, name="") for spec in given if spec.name}
    if not named:
        return given
    if unknown := [name for name in named if name not in names]:
        raise UserModelError(f"--input {unknown[0]}=...: no such input: {takes}")
    if missing := [name for name in needed if name not in named]:
        raise UserModelError(f"--input: {missing[0]} is missing: {takes}")
    return [named[name] for name in needed]


def element_type_or_refuse(name: str, element_type: str | None, where: str) -> str:
    """Returns the type of an input; raises UserModelError if the suite does not support it."""
    if element_type is None or element_type not in TYPES:
        raise UserModelError(f"{where}: input {name!r} has an unsupported type")
    return element_type
