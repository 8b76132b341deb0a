"""Probes of executors in their own processes, and the tables of them."""

from __future__ import annotations

import pytest

from repro.audit.probes.__main__ import main
from repro.audit.probes.running import NOT_RUN, probe_executors, usual
from repro.audit.probes.tables import markdown
from repro.audit.records import Executor, Probe
from tests.audit.probe_peers import TABLE

ORDER = "lanes(4), fold halves"


def probed(family: str, seconds: float = 60) -> tuple[Probe, ...]:
    return probe_executors([Executor(family)], (24,), seconds, table=TABLE)


def test_an_executor_is_probed_in_a_process_of_its_own() -> None:
    (found,) = probed("lanes")
    assert (found.executor, found.operation, found.length) == ("lanes", "dot", 24)
    assert (found.order, found.fused, found.precision, found.confirmed) == (ORDER, False, 24, True)
    assert found.calls > 24


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("dies", "crashed: exit status -6"),
        ("raises", "failed: sum: RuntimeError: no kernel"),
        ("absent", "missing: not installed"),
    ],
)
def test_what_does_not_run_says_why(family: str, reason: str) -> None:
    found = probed(family)
    assert [probe.tree for probe in found if probe.operation == NOT_RUN] == [reason]
    kept = [probe.order for probe in found if probe.operation != NOT_RUN]
    assert kept == ([] if family == "absent" else [ORDER]), "what was known before is kept"


def test_a_probe_that_never_ends_is_ended() -> None:
    assert [probe.tree for probe in probed("hangs", seconds=1)] == ["out of time: more than 1 s"]


def test_all_that_is_usual_is_probed_once() -> None:
    assert [each.name for each in usual({"lanes": TABLE["lanes"]})] == ["lanes[threads=1]", "lanes[threads=2]"]
    names = [each.name for each in usual()]
    assert "onnxruntime[level=all,threads=1]" in names
    assert "onnxruntime[level=basic,threads=1]" not in names


def test_tables_join_what_is_the_same() -> None:
    probes = probe_executors(usual({"lanes": TABLE["lanes"]}), (24, 32), table=TABLE)
    lines = list(markdown((*probes, *probed("absent")), {"cpu": "a CPU", "cores": 2}))
    assert lines[0] == "Host: cpu a CPU."
    assert f"| dot | 24, 32 | {ORDER} | no | 24 | yes | threads=1, threads=2 |" in lines
    assert lines[-1] == "- absent did not run: missing: not installed"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--against", "lanes[threads=2]", "--lengths", "24"], TABLE) == 0
    assert f"| dot | 24 | {ORDER} | no | 24 | yes | threads=2 |" in capsys.readouterr().out
    assert main(["--against", "absent,lanes", "--lengths", "24"], TABLE) == 3
    assert main(["--against", "nothing"], TABLE) == 2
    assert "unknown executor 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--lengths", "many"], TABLE)
