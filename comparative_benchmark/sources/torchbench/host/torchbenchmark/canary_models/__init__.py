"""Where a folder is a module; its `__path__` is set by who loads one."""
