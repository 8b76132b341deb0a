"""The examples give what their records say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from examples import char_gpt, curves, digits


def test_shifts_move_by_one_pixel():
    image = np.zeros((1, 1, 8, 8), np.float32)
    image[0, 0, 3, 4] = 1
    for down, right in digits.SHIFTS:
        assert np.argwhere(digits.shifted(image, down, right)).tolist() == [[0, 0, 3 + down, 4 + right]]


def test_no_test_image_is_trained_on():
    training, test = digits.data(digits.EXAMPLES["cnn"])
    assert (len(training["labels"]), len(test["labels"])) == (1437, 360)
    known = {image.tobytes() for image in training["input"]}
    assert sum(image.tobytes() in known for image in test["input"]) == 0


def test_metrics_become_curves(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 1, "epoch": 0, "loss": 2.5},
        {"step": 1, "validation": {"loss": 2.0, "samples": 3, "accuracy": 0.5}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curves.read(path) == {
        "loss": ([1], [2.5]), "validation loss": ([1], [2.0]), "validation accuracy": ([1], [0.5]),
    }  # fmt: skip


def test_a_label_is_the_character_after():
    training, validation = char_gpt.data()
    for given in (training, validation):
        assert given["ids"].shape == given["labels"].shape
        assert np.array_equal(given["ids"].reshape(-1)[1:], given["labels"].reshape(-1)[:-1])
        assert 0 <= given["ids"].min() <= given["ids"].max() < 96
    text = "\n ~Az"
    assert char_gpt.decode(char_gpt.encode(text).tolist()) == text


@pytest.mark.full
def test_the_gpt_is_trained_to_the_recorded_bits(tmp_path: Path):
    done = char_gpt.train(tmp_path, threads=1)
    assert done == json.loads(char_gpt.GOLDEN.read_text())
    measured = curves.read(tmp_path / "char_gpt.checkpoints" / "metrics.jsonl")["validation loss"][1]
    assert measured == sorted(measured, reverse=True)
    assert measured[-1] < 1.7
    assert char_gpt.write(tmp_path, "The ", 20).startswith("The ")


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(digits.EXAMPLES))
def test_the_digits_are_learned_to_the_recorded_bits(name: str, tmp_path: Path):
    done = digits.train(name, tmp_path, threads=2)
    assert done["right"] / done["of"] >= digits.EXAMPLES[name].least_accuracy
    assert done == json.loads(digits.GOLDEN.read_text())[name]
