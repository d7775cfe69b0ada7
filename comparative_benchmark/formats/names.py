"""Names of the formats, for whoever needs no format itself."""

AUTO = "auto"
EXPORTS = (
    *("torchbench", "oss-v3", "google-benchmark", "pytest-benchmark"),
    *("asv", "csv", "parquet", "junit"),
)
IMPORTS = ("torchbench", "oss-v3", "google-benchmark", "openxla-suite")
# Names that formats had before.
FORMER = {"seed-results": "openxla-suite"}
