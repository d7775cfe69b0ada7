"""What an error came of."""


def chain(error: BaseException, *, implicit: bool) -> list[BaseException]:
    """Returns an error and what it was raised from; implicitly, too, while what was handled."""
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        following = following.__cause__ or (following.__context__ if implicit else None)
    return found
