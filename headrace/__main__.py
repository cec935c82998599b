"""The ``headrace`` command, also as ``python -m headrace``."""

import resource
import sys


def main() -> None:
    """Run it; Ctrl-C ends it quietly with 130 even while its parts are still being loaded."""
    # A crash leaves no memory image: it would hold captured content and keys. Children inherit this.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        from headrace.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
