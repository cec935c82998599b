"""``headrace login``: the command line as the person whom the identity provider knows.

The session stands in the store that the console has, so that it ends, and is ended, in the same way. Its
id rests in the home folder of the user of this machine, for that user alone.
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from headrace.console.sessions import COMMAND_LINE, SessionStore
from headrace.console.users import User, process_user, system_user
from trajectory.errors import ConfigurationError
from trajectory.files import make_folders, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.app.context import AppContext

_PATH = "/callback"
_SECONDS = 300.0
"""How long somebody may take to sign in."""
_DONE = b"Signed in. You can close this page and go back to the command line.\n"


def user_of(app: "AppContext") -> User:
    """Return who uses the command line: a process of Headrace, who signed in here, or the user of this machine.

    Raises:
        ConfigurationError: who signed in here is not signed in any more.
    """
    if (process := process_user()) is not None:
        return process
    place = session_file(app.home.root)
    try:
        session = place.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return system_user()
    found = _sessions(app).user_of(session)
    if found is None or found.authority != app.settings.console.oidc.issuer:
        raise ConfigurationError(
            "your sign-in has ended: `headrace login` again, or `headrace logout` to go on as the user of "
            "this machine"
        )
    return found


def log_in(app: "AppContext", port: int, tell: Callable[[str], None]) -> User:
    """Have somebody sign in at the identity provider with a browser on this machine.

    Args:
        app: the installation.
        port: where the browser comes back to on this machine; 0 takes any.
        tell: is given the address to open.

    Raises:
        ConfigurationError: no provider is configured.
        SignInError: nobody was signed in.
    """
    from headrace.console.attempt import SignInAttempt, SignInError
    from headrace.console.oidc import IdentityProvider

    settings = app.settings.console
    if not settings.oidc.issuer:
        raise ConfigurationError(
            "there is no identity provider to sign in at: set console.oidc. Without one you are the user "
            f"of this machine, {system_user().name}"
        )
    provider = IdentityProvider(settings.oidc, client_id=settings.oidc.login_client_id)
    attempt = SignInAttempt.new()
    with _coming_back(port) as (address, wait):
        tell(provider.address(attempt, address))
        answer = wait()
    if answer is None:
        raise SignInError(f"nobody came back within {_SECONDS / 60:.0f} minutes; try again")
    came = provider.signed_in(attempt, answer, address)
    user = came.granted(settings.groups)
    app.audit.append(
        actor=user.name,
        action="console.signed_in",
        subject="command line",
        detail={"by": user.authority},
    )
    _forget(app)
    session = _sessions(app).begin(user, COMMAND_LINE)
    place = session_file(app.home.root)
    make_folders(place.parent, mode=0o700)
    replace_file(place, session.encode())
    return user


def log_out(app: "AppContext") -> bool:
    """End the sign-in of the command line; False where there is none."""
    return _forget(app)


def _forget(app: "AppContext") -> bool:
    place = session_file(app.home.root)
    try:
        session = place.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return False
    _sessions(app).end(session)
    place.unlink(missing_ok=True)
    return True


def _sessions(app: "AppContext") -> SessionStore:
    return SessionStore.of(app.home.create().sessions, app.settings.console)


def session_file(home: Path) -> Path:
    """Return where the id of the session with a home is kept."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = blake2b(str(home.resolve()).encode(), digest_size=8).hexdigest()
    return Path(state) / "headrace" / f"{name}.session"


@contextmanager
def _coming_back(port: int) -> "Iterator[tuple[str, Callable[[], Mapping[str, str] | None]]]":
    """Listen on this machine for a browser; yield where it comes to, and what waits for it."""
    came = threading.Event()
    answer: dict[str, str] = {}

    class BrowserReturn(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            is_it = parts.path == _PATH and not came.is_set()
            self.send_response(200 if is_it else 404)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.end_headers()
            if is_it:
                self.wfile.write(_DONE)
                answer.update(parse_qsl(parts.query, max_num_fields=20))
                came.set()

        def log_message(self, format: str, *_arguments: Any) -> None:  # noqa: A002
            """Say nothing: the code of a sign-in is for no log."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), BrowserReturn)
    except OSError as error:
        raise ConfigurationError(
            f"port {port} of this machine is taken ({error.strerror}); give another --port"
        ) from None
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
    )
    thread.start()
    try:
        yield (
            f"http://127.0.0.1:{server.server_address[1]}{_PATH}",
            lambda: answer if came.wait(_SECONDS) else None,
        )
    finally:
        server.shutdown()
        server.server_close()
