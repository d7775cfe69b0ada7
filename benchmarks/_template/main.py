"""The script that is measured: `voir main.py` runs it."""

import time

import voir
from giving import give


def main():
    """Trains nothing, at a known speed: 64 items in a tenth of a second."""
    for i in voir.iterate("train", range(100), report_batch=True, batch_size=64):
        give(loss=1 / (i + 1))
        time.sleep(0.1)


if __name__ == "__main__":
    main()
