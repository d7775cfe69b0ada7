"""Names that the page's script and its template share."""

# Parameters of the address, as in `static/2-state.js`, and what a person calls them.
FILTERS = {
    "framework": "Framework",
    "backend": "Backend",
    "dtype": "Type",
    "batch": "Batch",
    "tag": "Tag",
    "device": "Device",
    "status": "Status or verdict",
}
