"""What benchfiles import of `milabench.commands.executors`."""

from typing import Any


async def execute_command(command: Any, *_: Any, **__: Any) -> Any:
    """Runs a command."""
    return await command.execute()
