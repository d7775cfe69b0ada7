"""Where `setupvoir` was before it came to `benchmate.monitor`."""

from .monitor import setupvoir as setupvoir  # noqa: PLC0414  # scripts import it from here
