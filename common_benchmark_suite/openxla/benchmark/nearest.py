"""What a misspelt word probably means."""

from collections.abc import Iterable


def near(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the nearest of these words; None if nothing is like it.

    Args:
      word: as it was typed.
      known: words that there are.
      cutoff: how like it must be, from 0 to 1.
    """
    # Only a mistake wants it, and every command would wait for the import.
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of a message that suggests the nearest of these; empty if none is near."""
    close = near(word, known)
    return f"; did you mean {close}?" if close else ""


def choices(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Returns `did you mean X? choices are ...`, the former if one is near."""
    names = list(known)
    close = near(word, names, cutoff=cutoff)
    return f"{f'did you mean {close}? ' if close else ''}choices are {', '.join(names)}"
