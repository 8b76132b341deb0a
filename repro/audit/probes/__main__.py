"""python -m repro.audit.probes [--against LIST] [--lengths LIST] [--seconds N]: the orders in which executors add, as a
table in Markdown (docs/orders.md is one).

Exit codes: 0 all were read, 2 wrong use, 3 an executor that was asked for did not run to its end.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from repro.audit import environment, running
from repro.audit.peers import PEERS
from repro.audit.probes.running import NOT_RUN, SECONDS, probe_executors, usual
from repro.audit.probes.tables import markdown
from repro.errors import EXIT_GOOD, EXIT_INCOMPLETE, ReproError

LENGTHS = "16,100,128,1024,4096"
_BETWEEN = re.compile(r",(?![^\[]*\])")
"""Commas outside of brackets."""


def main(arguments: Sequence[str], table: Mapping[str, str] = PEERS) -> int:
    parser = argparse.ArgumentParser(prog="python -m repro.audit.probes", description=__doc__)
    parser.add_argument("--against", metavar="LIST", help="families or executors, with commas (default: the usual)")
    parser.add_argument("--lengths", metavar="LIST", default=LENGTHS, help=f"numbers of terms (default: {LENGTHS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the most that one executor takes")
    options = parser.parse_args(arguments)
    try:
        executors = running.choose(_BETWEEN.split(options.against), table) if options.against else usual(table)
        lengths = [int(length) for length in options.lengths.split(",")]
    except ReproError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except ValueError:
        parser.error(f"lengths are numbers with commas between them, not {options.lengths}")
    probes = probe_executors(executors, lengths, options.seconds, table=table)
    _write(markdown(probes, environment.host()))
    failed = options.against and any(probe.operation == NOT_RUN for probe in probes)
    return EXIT_INCOMPLETE if failed else EXIT_GOOD


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
