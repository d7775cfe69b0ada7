"""The facts that the doctor's commands print, put as its findings put them."""

import re
import subprocess


def shell(command, **changes):
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False, **changes
    )


# The output of each command, in the words of the finding.
def marks_of(out):
    lines = out.split()
    kind = "virtual machine" if "hypervisor" in lines else "no hypervisor flag"
    found = [path for path in ("/.dockerenv", "/run/.containerenv") if path in out]
    return [kind, *(found or [""])]


def turbo_of(out):
    return [{"0": "off", "1": "on"}[out.strip()]]


def no_turbo_of(out):
    return [{"1": "off", "0": "on"}[out.strip()]]


def smt_of(out):
    active, *cores = out.splitlines()
    return ["off"] if active == "0" else [f"on (usable CPUs: 2, cores: {len(cores)})"]


def quota_of(out):
    quotas = []
    for line in out.splitlines():
        path, _, text = line.partition(":")
        if path.endswith("cpu.max") and not text.startswith("max"):
            quota, period = map(int, text.split())
            quotas.append(quota / period)
        if path.endswith("cpu.cfs_quota_us") and int(text) >= 0:
            period = next(x for x in out.splitlines() if "cpu.cfs_period_us:" in x)
            quotas.append(int(text) / int(period.rpartition(":")[2]))
    throttles = sum(map(int, re.findall(r"nr_throttled (\d+)", out)))
    stopped = f"times throttled so far: {throttles}" if throttles else ""
    return [f"quota in CPUs: {min(quotas):.3g}" if quotas else "no quota", stopped]


def heat_of(out):
    first, *_, last = [*out.splitlines(), ""]
    degrees = f"maximum {int(last or first) / 1e3:.0f} degrees C"
    return [f"total {first}", degrees] if last else [f"total {first}"]


def text_of(out):
    return [", ".join(out.split("\n")).removesuffix(", ")]


def first_of(out):
    return [out.split()[0]]


def inside_of(out):
    return [out.strip().strip("[]")]
