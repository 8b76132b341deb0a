"""The command line, as the script `repro` and as `python -m repro`: loaded here, so that whoever stops it meanwhile, or
has no memory for it, sees no traceback."""

import sys


def main() -> int:
    """Run one command; returns the exit code."""
    try:
        from repro import cli
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except (OSError, MemoryError) as error:
        sys.stderr.write(f"error: repro cannot be loaded\n  found: {error or 'too little memory'}\n")
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
