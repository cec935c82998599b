"""What a request of a browser brings: a form, an address, a page to go on to."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from trajectory.http_server import BodyTooLongError, read_body

_LONGEST_FORM = 256 * 1024


async def form_of(request: Request) -> dict[str, str]:
    """Return what was sent with POST.

    Raises:
        HTTPException: it is too long, or no form.
    """
    try:
        body = await read_body(request, _LONGEST_FORM)
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except BodyTooLongError:
        raise HTTPException(413, "At most 256 KiB can be sent.") from None
    except ValueError:
        raise HTTPException(400, "This is no form.") from None


def next_place(values: Mapping[str, str]) -> str:
    """Return the page of the console to go on to; no other host's."""
    place = values.get("next", "")
    return place if place[:1] == "/" and place[1:2].isalnum() else "/home"


def address_of(request: Request) -> str:
    """Return who is at the other end of the connection."""
    return request.client.host if request.client else ""
