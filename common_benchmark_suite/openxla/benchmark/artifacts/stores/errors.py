"""What can go wrong between a store and this machine; each message names the object."""


class StoreError(RuntimeError):
    """An object can not be read or written; the message says which, why and what to do next."""


class NotFoundError(StoreError):
    """There is no such object."""


class AccessDeniedError(StoreError):
    """The store does not let us."""


class AlreadyExistsError(StoreError):
    """An object of this name is there already; objects are written once."""


class DamagedError(StoreError):
    """What was read is not what was announced: another size or another digest."""


class DeadlineError(StoreError):
    """The time that the user gave is over."""


class NoSpaceError(StoreError):
    """The disk is full, or a limit on bytes is reached."""


class TransientError(StoreError):
    """The next attempt may succeed.

    Attributes:
      retry_after_s: how long the server asks to wait; None where it does not say.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
