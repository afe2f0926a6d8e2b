"""The command line of mlpengine; installed as the package mlpengine_cli."""

import os
import sys


def start() -> None:
    """Run the command line and exit with its code.

    Ctrl-C during the first imports, before `main` handles signals, prints no traceback.
    """
    try:
        from .main import main

        main()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        sys.exit(130)
