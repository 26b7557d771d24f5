"""`python -m bilevel` is the `bilevel` command."""

from __future__ import annotations

import sys

_USAGE = 2


def main() -> None:
    """Run the command; without the packages that it needs, say how to install them."""
    try:
        from bilevel.cli.main import main as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("bilevel"):
            raise
        print(
            f'error: the command line needs {error.name}: pip install "bilevel[cli]"',
            file=sys.stderr,
        )
        sys.exit(_USAGE)
    run()


if __name__ == "__main__":
    main()
