"""Variables by which programs keep off the network, and say at once that they need it."""

# Nobody listens on port 9, so what goes there is refused at once.
_NOWHERE = "http://127.0.0.1:9"
_HERE = "localhost,127.0.0.1,::1"
VARIABLES = {
    **{
        spelt: _NOWHERE
        for scheme in ("http", "https", "ftp", "all")
        for spelt in (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    },
    "no_proxy": _HERE,
    "NO_PROXY": _HERE,
    # Hubs try for half a minute else.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
# What errors are called, and what they say, that come of it.
ERRORS = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "NetworkRefusedError")
_WORDS = ("offline mode", "couldn't connect to", "connection refused", "127.0.0.1:9")


def is_why(text: str) -> bool:
    """Tells whether an error's text says that it needed the network."""
    return any(name in text for name in ERRORS) or any(word in text.lower() for word in _WORDS)
