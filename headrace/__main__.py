"""The ``headrace`` command, also as ``python -m headrace``."""

import sys


def main() -> None:
    """Run it; Ctrl-C ends it quietly with 130 even while its parts are still being loaded."""
    try:
        from headrace.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
