"""Import and export of results in the formats of other tools."""

AUTO = "auto"
EXPORTS = (
    *("torchbench", "oss-v3", "google-benchmark", "pytest-benchmark"),
    *("asv", "csv", "parquet", "junit"),
)
IMPORTS = ("torchbench", "oss-v3", "google-benchmark", "openxla-suite")
# Former names of formats.
FORMER = {"seed-results": "openxla-suite"}
