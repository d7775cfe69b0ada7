"""Former module of `setupvoir`, which is now in `benchmate.monitor`."""

from .monitor import setupvoir as setupvoir  # noqa: PLC0414  # scripts import it from here
