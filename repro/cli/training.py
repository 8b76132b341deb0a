"""The commands of training: train, export, bisect."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from repro import driver_training, tables
from repro.cli import Commands, shown
from repro.cli.arguments import count, new_file, seed, threads
from repro.errors import EXIT_GOOD, EXIT_INTERRUPTED
from repro.progress import TrainingProgress


def _steps(text: str) -> tuple[int, ...]:
    return tuple(count(word) for word in text.split(","))


def _train_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("artifact", type=Path, metavar="ARTIFACT.json")
    made.add_argument("--data", type=Path, required=True, metavar="DATA", help=".npz file, or folder of .npy files")
    end = made.add_mutually_exclusive_group(required=True)
    end.add_argument(
        "--epochs",
        type=count,
        metavar="N",
        help="train up to this many epochs, counted from the beginning even with --resume",
    )
    end.add_argument("--steps", type=count, metavar="N", help="train up to this many steps, counted likewise")
    made.add_argument("--batch", type=count, metavar="N", help="check that the artifact was built for this batch size")
    made.add_argument(
        "--last",
        choices=("drop", "pad"),
        default="drop",
        help="drop or fill up an incomplete last batch (default: drop)",
    )
    made.add_argument("--seed", type=seed, default=0, metavar="INT", help="seed of the order of samples (default: 0)")
    made.add_argument("--validation", type=Path, metavar="DATA", help="held-out data with the same names")
    made.add_argument("--evaluate-every", type=count, metavar="N", help="steps (default: an epoch)")
    made.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="folder for checkpoints")
    made.add_argument("--checkpoint-every", type=count, metavar="N", help="steps (default: an epoch)")
    made.add_argument("--keep", type=count, default=3, metavar="N", help="newest checkpoints to keep (default: 3)")
    made.add_argument("--trace", type=Path, metavar="FILE", help="write a trace: one hash-chained line for each step")
    made.add_argument(
        "--trace-state-every", type=count, default=1, metavar="N", help="digest the state of each Nth step"
    )
    made.add_argument("--trace-tensors", action="store_true", help="each traced state has each tensor's digest too")
    made.add_argument(
        "--trace-nodes-every", type=count, metavar="N", help="digest each node's value in each Nth step (slow)"
    )
    made.add_argument(
        "--trace-nodes-at", type=_steps, default=(), metavar="STEP,...", help="digest each node's value in these steps"
    )
    made.add_argument("--metrics", type=Path, metavar="FILE", help="default: metrics.jsonl beside the checkpoints")
    made.add_argument("--resume", action="store_true", help="continue from the newest checkpoint, if there is one")
    made.add_argument("--target", default="cpu", metavar="NAME", help="target to train on (default: cpu)")
    made.add_argument("--threads", type=threads, metavar="N", help="default: one for each core")
    shared = "simulated chips that share the virtual shards (--target tpu-sim)"
    made.add_argument("--chips", type=count, default=1, metavar="N", help=shared)
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _export_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint, or the folder of checkpoints: its newest"
    )
    made.add_argument("-o", "--out", type=new_file, required=True, metavar="trained.onnx")
    made.add_argument(
        "--artifact", type=Path, metavar="ARTIFACT.json", help="where the artifact is now, if it was moved"
    )


def _bisect_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("left", type=Path, metavar="LEFT.trace")
    made.add_argument(
        "right", type=Path, nargs="?", metavar="RIGHT.trace", help="without it: compare with a re-run of the left"
    )
    made.add_argument("--artifact", type=Path, metavar="ARTIFACT.json", help="run the differing step again")
    made.add_argument("--data", type=Path, metavar="DATA", help="what it was trained on")
    for side in ("left", "right"):
        made.add_argument(f"--{side}-checkpoint", type=Path, metavar="DIR", help=f"checkpoints of the {side} run")
        made.add_argument(f"--{side}-target", default="cpu", metavar="NAME", help=f"what to run the {side} one on")
    made.add_argument("--threads", type=threads, metavar="N", help="default: one for each core")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


_BISECT = ("artifact", "data", "left_checkpoint", "right_checkpoint", "left_target", "right_target", "threads")
_TRAIN = (
    "epochs", "steps", "batch", "last", "seed", "validation", "evaluate_every", "checkpoint", "checkpoint_every",
    "keep", "trace", "trace_state_every", "trace_tensors", "trace_nodes_every", "trace_nodes_at", "metrics",
    "resume", "target", "threads", "chips",
)  # fmt: skip


def _note(step: driver_training.TrainingStep) -> str:
    """The loss, and the metrics of the last validation."""
    measured = [f"{name} {value:.4g}" for name, value in (step.validation or {}).items() if name != "samples"]
    return f"loss {step.loss:.4f}" + (f" (validation: {', '.join(measured)})" if measured else "")


def train(options: argparse.Namespace) -> int:
    with TrainingProgress(tables.console(stderr=True)) as progress:
        done = driver_training.train(
            options.artifact,
            options.data,
            progress=lambda step: progress.step(step.step, step.steps, _note(step)),
            **{name: getattr(options, name) for name in _TRAIN},
        )
    measured = {name: str(value) for name, value in (done.validation or {}).items()}
    if options.json:
        fields = ("step", "epoch", "state", "interrupted", "not_finite")
        result = {name: getattr(done, name) for name in fields}
        loss = None if done.loss is None else str(done.loss)
        result |= {"loss": loss, "validation": measured, "checkpoint": str(done.checkpoint)}
        shown.print_json(result)
    else:
        out = tables.console()
        rows: dict[str, object] = {"step": done.step, "epochs finished": done.epoch}
        if done.loss is not None:  # a run that is resumed at its end makes no step
            rows["loss"] = done.loss
        if done.not_finite is not None:
            rows["first step whose loss is not finite"] = done.not_finite
        rows |= {f"validation {name}": value for name, value in measured.items()}
        shown.show_mapping(out, "interrupted" if done.interrupted else "trained", rows)
        tables.line(out, f"checkpoint {done.checkpoint}")
        tables.line(out, f"state      {done.state}", "bold")
    return EXIT_INTERRUPTED if done.interrupted else EXIT_GOOD


def export(options: argparse.Namespace) -> int:
    path = driver_training.export(options.checkpoint, options.out, artifact=options.artifact)
    tables.line(tables.console(), f"written to {path}")
    return EXIT_GOOD


def bisect(options: argparse.Namespace) -> int:
    found = driver_training.bisect(options.left, options.right, **{name: getattr(options, name) for name in _BISECT})
    if options.json:
        shown.print_json(found.json())
        return found.exit_code
    out = tables.console()
    for text in _bisection_lines(found):
        tables.line(out, text)
    for text in found.verdict:
        tables.line(out, text, "bold")
    return found.exit_code


def _bisection_lines(found: driver_training.Bisection) -> Iterator[str]:
    """What there is to show, as lines that are never wrapped: digests stay whole."""
    for each in found.fields:
        yield from (f"{each.name} of step {found.step}", f"  left   {each.left}", f"  right  {each.right}")
    if found.state_before is not None:
        yield from (f"state after step {found.state_before_step}", f"  both   {found.state_before}")
    if found.tensors and not found.values:
        yield f"state tensors that differ: {', '.join(found.tensors)}"
    for each in found.values:
        yield from _difference_lines(f"state tensor {each.name}", each)
    if found.recorded is not None:
        each = found.recorded
        yield f"recorded {each.op}, from {each.source or 'no ONNX node'}: {each.type}"
        yield from (f"  left   {each.left}", f"  right  {each.right}", *_operand_lines(each.operands))
    if found.node is not None:
        title = f"node {found.node.op}, from {found.node.source or 'no ONNX node'}"
        yield from _difference_lines(title, found.node.value)
        yield from _operand_lines(found.node.operands)


def _operand_lines(operands: tuple[driver_training.Operand, ...]) -> Iterator[str]:
    for read in operands:
        yield from (f"  reads {read.source}", f"    left   {read.left}", f"    right  {read.right}")


def _difference_lines(title: str, each: driver_training.TensorDifference) -> Iterator[str]:
    yield f"{title}: {each.type}, {each.differing} of {each.elements} elements differ, first at {list(each.index)}"
    if each.ulps is not None:
        yield f"  {each.ulps} ULP there, {each.largest_ulps} ULP at most"
    yield f"  left   {each.left} ({each.left_bits}) in {each.left_digest}"
    yield f"  right  {each.right} ({each.right_bits}) in {each.right_digest}"


COMMANDS: Commands = {
    "train": (_train_options, train),
    "export": (_export_options, export),
    "bisect": (_bisect_options, bisect),
}
