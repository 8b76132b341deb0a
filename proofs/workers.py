"""Classes of proofs in worker processes; what is done is kept, so that an interrupted proof goes on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from proofs.exhaustive import Prover, Tally, Wrong, code_digest, screen_digest
from repro.errors import InternalError

KEPT = Path(__file__).resolve().parents[1] / "build" / "proofs"


@dataclass(frozen=True)
class Outcome:
    """A class of a function: the digest of its results and what it showed."""

    name: str
    code: tuple[str, str]
    """Digests of the function and the screen that ran, as the process that ran them has them."""
    residue: int
    digest: str
    tally: Tally


@lru_cache(maxsize=4)
def _prover(name: str) -> Prover:
    return Prover(name)


@lru_cache(maxsize=4)
def _code(name: str) -> tuple[str, str]:
    return code_digest(name), screen_digest(name)


def run(name: str, residue: int) -> Outcome:
    """The class's outcome, from the folder of those kept or computed now."""
    prover = _prover(name)
    kept = KEPT / f"{name}-{prover.key[:32]}" / f"{residue}.json"
    if kept.exists():
        return _read(kept.read_text("utf-8"), name, residue)
    digest, tally = prover.run_class(residue)
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = kept.with_suffix(".new")
    beside.write_text(json.dumps({"digest": digest, "tally": asdict(tally)}), "utf-8")
    beside.replace(kept)
    return Outcome(name, _code(name), residue, digest, tally)


def _read(text: str, name: str, residue: int) -> Outcome:
    kept = json.loads(text)
    tally = Tally(**kept["tally"])
    tally.hard = [(argument, result) for argument, result in tally.hard]
    tally.wrong = [Wrong(**wrong) for wrong in kept["tally"]["wrong"]]
    return Outcome(name, _code(name), residue, kept["digest"], tally)


def outcomes(tasks: Iterable[tuple[str, int]], workers: int) -> Iterator[Outcome]:
    """Every task's outcome, as they end. Closing the iterator drops those that have not begun."""
    if workers < 1:
        raise InternalError(f"{workers} workers")
    if workers == 1:
        yield from (run(*task) for task in tasks)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[Outcome]] = [pool.submit(run, *task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
