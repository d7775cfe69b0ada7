"""Where a fleet job ran, as recorded in results."""

from typing import Annotated, Literal

import attrs
from msgspec import UNSET, Meta, UnsetType

_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Rate = Annotated[float, Meta(gt=0, le=1e300)]
_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


@attrs.frozen(kw_only=True)
class Allocation:
    """Where a fleet job ran.

    Attributes:
      fleet, campaign, machine_class: names from FLEET.toml and the command line.
      job: the job's key.
      node: the node's name.
      repeat: index of the repetition, from 0.
      attempt: number of earlier attempts at the job.
      restarts: how many times the scheduler had already started the batch.
      engine, engine_id: the scheduler, and its ID for the batch.
      exclusive: whether no other job could run on the node at the same time; None if unknown.
      not_exclusive: figures showing that other jobs could run; unset if exclusive or unknown.
      host: whether the node is a whole host or part of one; `unknown` if undetermined.
      environment_sha256: digest of the interpreter and the packages.
      canaries: rates of fixed programs that run before the job to detect slow nodes: `compute` in
        GFLOP/s, and `bandwidth` in GB/s.
    """

    fleet: _Text
    campaign: str
    machine_class: _Text
    job: _Text
    node: _Text
    repeat: _Count = 0
    attempt: _Count = 0
    restarts: _Count = 0
    engine: _Text
    engine_id: str = ""
    exclusive: bool | None = None
    not_exclusive: str | UnsetType = UNSET
    host: Literal["whole", "shared", "unknown"] = "unknown"
    environment_sha256: _Sha256
    canaries: dict[str, _Rate] = attrs.field(factory=dict)
