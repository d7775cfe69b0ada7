"""Prints pip's configuration as variables for uv, for a shell to evaluate.

uv does not read pip's files and variables. Machines that install from a mirror, or from a folder of
wheels, usually configure only pip.
"""

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping

# pip's option, uv's variable, and the separator of its values.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}
# Later ones override earlier ones.
_SECTIONS = ("global", "install", ":env:")


def variables(lines: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Returns uv's variables.

    Args:
      lines: the output of `pip config list`.
      given: the environment; variables that it sets are left out.
    """
    options = []
    for line in lines:
        key, separator, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if separator and section in _SECTIONS and option in VARIABLES:
            options.append((_SECTIONS.index(section), option, str(ast.literal_eval(value))))
    found = {}
    for _, option, value in sorted(options):
        name, separator = VARIABLES[option]
        if name not in given and value.split():
            found[name] = separator.join(value.split())
    # pip chooses the best version of all indexes; uv by default stops at the first one.
    return found | ({"UV_INDEX_STRATEGY": "unsafe-best-match"} if "UV_INDEX" in found else {})


def main() -> None:
    """Prints an `export` for each variable."""
    command = [sys.executable, "-P", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if ".no-index=" in listed:
        # uv has no variable for it, and would ask an index.
        sys.exit("pip is configured without an index, so pip installs")
    for name, value in variables(listed.splitlines(), os.environ).items():
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
