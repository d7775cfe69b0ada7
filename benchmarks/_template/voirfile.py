"""Observes main.py while it runs: speed, losses and devices."""

from dataclasses import dataclass

from voir import configurable
from voir.instruments import dash, early_stop, gpu_monitor, log, rate


@dataclass
class Config:
    """Options of voir, from the command line or the `voir` part of the YAML."""

    # Show losses, rates and progress on the terminal
    dash: bool = False

    # Interval between rates: a number of steps, or seconds if it ends with an s
    interval: str = "1s"

    # Number of rates to omit at the beginning
    skip: int = 0

    # Number of rates after which to stop
    stop: int = 20

    # Seconds between two readings of the devices
    gpu_poll: int = 3


@configurable
def instrument_main(ov, options: Config):
    """Requires the instruments that the options select."""
    yield ov.phases.init

    if options.dash:
        ov.require(dash)

    ov.require(
        log("value", "progress", "rate", "units", "loss", "gpudata", context="task"),
        # If the device works asynchronously, the script passes a function that waits, as `sync`.
        rate(interval=options.interval, skip=options.skip, sync=None),
        early_stop(n=options.stop, key="rate", task="train"),
        gpu_monitor(poll_interval=options.gpu_poll),
    )
