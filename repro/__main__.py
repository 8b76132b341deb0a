"""The command line, as the script `repro` and as `python -m repro`: loaded here, so that whoever stops it meanwhile, or
has no memory for it, sees no traceback."""

import os
import signal
import sys


def main() -> int:
    """Run one command; returns the exit code."""
    try:
        interrupted = signal.getsignal(signal.SIGINT)
        if interrupted is signal.default_int_handler:
            signal.signal(signal.SIGINT, _stop)
        from repro import cli, ending

        cli.called(sys.argv[1:])
        signal.signal(signal.SIGINT, interrupted)
        ending.heed_sigterm()
    except (OSError, MemoryError) as error:
        sys.stderr.write(f"error: repro cannot be loaded\n  found: {error or 'too little memory'}\n")
        return 2
    return cli.main()


def _stop(*_: object) -> None:
    """An exception would pass through modules that are half loaded, and through libraries that end the process by it or
    forget it. There is nothing yet to leave in order."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
