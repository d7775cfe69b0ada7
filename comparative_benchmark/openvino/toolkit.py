"""The module `openvino`, imported without its telemetry.

A conversion would start threads that report it to a server of Intel's. In a measured process
neither is wanted. Without the package `openvino_telemetry` OpenVINO uses a stand-in of its own,
which does nothing.
"""

import sys

if "openvino_telemetry" not in sys.modules:
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # "not installed"

import openvino as ov

__all__ = ["VERSION", "ov"]

# Without the number and branch of the build, which follow after a dash.
VERSION: str = ov.get_version().partition("-")[0]
