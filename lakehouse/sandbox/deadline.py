"""Work that may not take longer: interrupted at its deadline, left behind when it does not listen."""

import threading
from collections.abc import Callable

from trajectory.errors import WorkError

_GRACE_SECONDS = 2.0


class QueryTimeoutError(WorkError):
    """The statement ran past its deadline and was ended."""


class NotListeningError(QueryTimeoutError):
    """The statement did not react to being ended; its connection must not be used again."""


def within[T](seconds: float | None, work: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """Return what ``work`` returns, if it does so in time.

    DuckDB looks for an interrupt between its operations, and a few of them never end. So the work runs in a thread
    of its own, which is left behind if need be.

    Args:
        seconds: how long it may take; None waits for it here and as long as it takes.
        work: the work.
        interrupt: asks the work to end, from this thread.

    Raises:
        QueryTimeoutError: the work was ended.
        NotListeningError: it would not end and goes on in the background.
    """
    if seconds is None:
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - handed on to who asked
            errors.append(error)

    thread = threading.Thread(target=run, name="query", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    except BaseException:  # Ctrl-C
        interrupt()
        raise
    if thread.is_alive():
        interrupt()
        thread.join(_GRACE_SECONDS)
        text = f"the query was stopped after {seconds:g} s; narrow it or give it more seconds"
        raise NotListeningError(text) if thread.is_alive() else QueryTimeoutError(text)
    if errors:
        raise errors[0]
    return results[0]
