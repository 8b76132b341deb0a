"""Five steps of digits_mlp by the PyTorch that is installed, and with another momentum: `python -m
tests.audit.record_torch` writes torch_digits_mlp.json, so that what is found in it is tested without PyTorch too."""

from __future__ import annotations

from repro.audit import capture, environment, training
from repro.audit.peers.pytorch import executor
from repro.audit.records import Executor, Record
from tests.audit import training_runs as runs
from tests.audit.test_training_drift import RECORDED

if __name__ == "__main__":
    run, best = runs.audited("digits_mlp"), runs.golden("digits_mlp")
    plain = executor(threads="1")
    table = {**training.PEERS, "planted": "tests.audit.planted_torch:PlantedTorch"}
    captures = [runs.captured(run, best, each, table) for each in (plain, Executor("planted", plain.options))]
    made = runs.record(run, best, *captures)
    capture.write(Record(made.model, made.inputs, made.golden, made.captures, environment.host()), RECORDED)
