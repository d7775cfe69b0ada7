"""Helpers of the tests of exporters: a generation as users run it, and its files."""

import hashlib
import subprocess
import sys
from pathlib import Path

import attrs

from openxla.benchmark.artifacts import manifests

_RUN = """
import sys
from comparative_benchmark.cli.commands import artifacts
from comparative_benchmark.cli.options import maintenance as options
from comparative_benchmark.cli.options.parsing import Parser
parser = Parser()
options.add_generate_arguments(parser)
sys.exit(artifacts.generate(parser.parse_args()))
"""


@attrs.frozen
class Generated:
    """A finished generation of one model."""

    code: int
    err: str
    directory: Path

    @property
    def manifest(self):
        return manifests.read_manifest(self.directory)

    @property
    def made(self):
        return {file.artifact_type for file in self.manifest.files}

    @property
    def failures(self):
        return {failure.artifact_type: failure.reason for failure in self.manifest.failures}

    def digests(self):
        return {
            path.relative_to(self.directory).as_posix(): hashlib.sha256(
                path.read_bytes()
            ).hexdigest()
            for path in self.directory.rglob("*")
            if path.is_file()
        }


def generate(model, folder, environment, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", _RUN, "-name", model, "-o", str(folder), *arguments],
        env={**environment, "SOURCE_DATE_EPOCH": "1700000000"},
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return Generated(done.returncode, done.stderr, folder / model)


def holds_no_path(directory, *paths):
    """Returns the files of a directory that name a place of this machine."""
    marks = [str(path).encode() for path in paths]
    return [
        path.name
        for path in directory.rglob("*")
        if path.is_file() and any(mark in path.read_bytes() for mark in marks)
    ]
