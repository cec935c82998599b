"""Work of an engine's workers: redact, detect, or read a lake. Requests and answers are sealed.

Each is a pure function of its request and of what the node has: master key, policy bundle and access to the lake.
The key comes from the node's own environment or secrets folder; keys never travel.
"""

import os
import pickle
import resource
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from governance.executor import RedactionAnswer, RedactionRequest
from headrace.app.master_key import Secrets, load_secrets
from trajectory.errors import ConfigurationError, HeadraceError, WorkError

if TYPE_CHECKING:
    from governance.redact.detection_cache import Findings
    from governance.redact.redactor import Redactor
    from train.substrate.iteration import SelectedPart

SEAL_USE = b"engine"


class RedactionJob(NamedTuple):
    """Some trajectories of a batch, and the policy that they are redacted by."""

    bundle: str
    """The policy bundle's name or folder, as the settings give it."""
    content_hash: str
    """What the bundle must be; a node with another one refuses."""
    requests: tuple[RedactionRequest, ...]


class ExtractionJob(NamedTuple):
    """One part of the trajectories that a substrate is selected from."""

    lake: str
    options: Mapping[str, str]
    spec: Mapping[str, Any]
    """The substrate's ``spec`` as JSON."""
    versions: Mapping[str, int]
    part: int
    parts: int


def run(home: str, label: str, name: str, sealed: bytes) -> bytes:
    """Do one sealed piece of work and return the sealed answer.

    Raises:
        HeadraceError: the node cannot do it; other errors are named by their type only, for
            their text may quote what was worked on.
    """
    seal = Seal(_secrets(home).derive(SEAL_USE))
    return seal.close(do(home, name, seal.open(sealed, label)), label + "/answer")


def do(home: str, name: str, job: Any) -> Any:
    """Do one piece of work and return the answer.

    Raises:
        HeadraceError: as :func:`run`.
    """
    # A worker that crashes leaves no memory image of what it was reading.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        return _WORK[name](job, _secrets(home))
    except HeadraceError:
        raise
    except Exception as error:  # noqa: BLE001 - see the docstring
        raise WorkError(
            f"a worker of the engine failed at {name} ({type(error).__name__}); run the same with "
            "--engine local to see why"
        ) from None


def redact(job: RedactionJob, secrets: Secrets) -> list[RedactionAnswer]:
    """Redact trajectories as the governing process would."""
    from governance.executor import InlineRedaction

    redactor = _redactor(job.bundle, job.content_hash, secrets)
    return InlineRedaction(redactor).redact_all(job.requests)


def find(job: RedactionJob, secrets: Secrets) -> list["Findings | None"]:
    """Look into trajectories and tell where something is; None where that failed.

    Nothing is replaced here, so that no key of a subject is needed.
    """
    redactor = _redactor(job.bundle, job.content_hash, secrets, replaces=False)
    answers: list[Findings | None] = []
    for request in job.requests:
        try:
            answers.append(redactor.find(request.messages))
        except Exception:  # noqa: BLE001 (fail closed: the governor tries, and holds, call by call)
            answers.append(None)
    return answers


def walk(job: ExtractionJob, secrets: Secrets) -> "SelectedPart":  # noqa: ARG001 - reading a lake takes no key
    """Select and walk one part of a lake."""
    from lakehouse.lake import Lake
    from train.substrate.iteration import walk_part
    from train.substrate.selection import Part
    from train.substrate.spec import SubstrateSpec

    lake = Lake.open(job.lake, create=False, options=job.options)
    spec = SubstrateSpec.model_validate(dict(job.spec))
    return walk_part(lake, spec, as_of=job.versions, part=Part(job.part, job.parts))


_WORK: dict[str, Callable[[Any, Secrets], Any]] = {"redact": redact, "find": find, "walk": walk}


@cache
def _secrets(home: str) -> Secrets:
    return load_secrets(Path(home) / "secrets")


@lru_cache(maxsize=2)
def _redactor(
    bundle_name: str, content_hash: str, secrets: Secrets, *, replaces: bool = True
) -> "Redactor":
    """Return the redactor of a policy; it takes seconds to build and serves many pieces of work.

    One that only finds (not ``replaces``) gets by without the keys of subjects, which no node has.
    """
    from governance.policy import load_bundle
    from governance.redact import redactor_of, settle
    from governance.redact.subject_keys import MemorySubjectKeys

    bundle = load_bundle(Path(bundle_name))
    if bundle.content_hash != content_hash:
        raise ConfigurationError(
            f"policy bundle {bundle_name}: this node has {bundle.content_hash}, the governing "
            f"process {content_hash}; give every node the same bundle"
        )
    redactor = redactor_of(
        bundle,
        pseudonym_key=secrets.derive(b"pseudonym"),
        subjects=None if replaces else MemorySubjectKeys(),
    )
    settle()
    return redactor


_NONCE_BYTES = 12


class Seal:
    """Encrypts and authenticates Python values (AES-256-GCM).

    A value is bound to the label that it was sealed with: an answer cannot be passed off as the
    answer to another request. What has been authenticated is ours, so it may be unpickled.
    """

    def __init__(self, key: bytes) -> None:
        """Work with a 32-byte key, which never travels itself."""
        self._cipher = AESGCM(key)

    def close(self, value: Any, label: str) -> bytes:
        """Return ``value`` sealed under ``label``."""
        nonce = os.urandom(_NONCE_BYTES)
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return nonce + self._cipher.encrypt(nonce, data, label.encode())

    def open(self, sealed: bytes, label: str) -> Any:
        """Return the value that was sealed under ``label``.

        Raises:
            ConfigurationError: it was sealed with another key, or under another label.
        """
        try:
            data = self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode()
            )
        except InvalidTag:
            raise ConfigurationError(
                "the engine's worker and the governing process have different master keys; give "
                "every node the same one (HEADRACE_MASTER_KEY, or the home's secrets folder)"
            ) from None
        return pickle.loads(data)  # noqa: S301 - authenticated above
