"""`milabench.commands.executors` as benchfiles import it."""

from typing import Any


async def execute_command(command: Any, *_: Any, **__: Any) -> Any:
    """Runs a command."""
    return await command.execute()
