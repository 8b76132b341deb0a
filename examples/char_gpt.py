"""Train a character GPT (2 layers, width 64, 32 characters) and let it write: `python -m examples.char_gpt`.

The first nine tenths of data/text.txt are trained on, the rest is the validation text; a sample is 32 characters, its
labels the characters after each. The tokenizer is one line: a character is its ASCII code less 31, a new line is 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import repro
from repro import ending
from repro.ir.types import Array
from repro.numerics.random_bits import philox_words
from repro.training import checkpoint as checkpoints

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "char_gpt.json"
MODEL = HERE.parent / "golden" / "nano_gpt" / "forward.onnx"
TOKENS, BATCH, EPOCHS = 32, 8, 4


def encode(text: str) -> Array:
    return np.array([0 if character == "\n" else ord(character) - 31 for character in text], np.int64)


def decode(tokens: list[int]) -> str:
    return "".join("\n" if token == 0 else chr(token + 31) for token in tokens)


def windows(tokens: Array) -> dict[str, Array]:
    """Consecutive stretches of 32 characters, and what follows each of them."""
    count = (len(tokens) - 1) // TOKENS
    ids, after = (tokens[start : start + count * TOKENS].reshape(count, TOKENS) for start in (0, 1))
    return {"ids": ids, "labels": after}


def data() -> tuple[dict[str, Array], dict[str, Array]]:
    tokens = encode((HERE / "data" / "text.txt").read_text(encoding="ascii"))
    cut = len(tokens) * 9 // 10
    return windows(tokens[:cut]), windows(tokens[cut:])


def train(folder: Path, target: str = "cpu", threads: int | None = None, epochs: int = EPOCHS) -> dict[str, Any]:
    """Build, train and measure; what the golden record keeps of it."""
    training, validation = data()
    steps = len(training["ids"]) // BATCH * epochs
    artifact = repro.build(
        MODEL,
        folder / "char_gpt.repro",
        loss="softmax_cross_entropy",
        optimizer="adamw",
        learning_rate=0.003,
        schedule="cosine",
        total_steps=steps,
        warmup_steps=100,
        clip_norm=1.0,
    )
    done = repro.train(
        artifact.folder,
        training,
        validation=validation,
        epochs=epochs,
        checkpoint=folder / "char_gpt.checkpoints",
        trace=folder / "char_gpt.trace",
        target=target,
        threads=threads,
    )
    assert done.validation is not None
    return {"steps": done.step, "state": done.state, "validation_loss": float(done.validation["loss"]).hex()}


def write(folder: Path, prompt: str, count: int, seed: int = 0) -> str:
    """Characters after a prompt, each drawn from the model's probabilities by a word of Philox."""
    artifact = repro.load(folder / "char_gpt.repro")
    state = checkpoints.read(folder / "char_gpt.checkpoints").state
    tokens = encode(prompt).tolist()
    words = philox_words(seed, 0, 0, count)
    with artifact.session("infer", threads=1) as session:
        session.state = {name: array for name, array in state.items() if name in session.state}
        for word in words.tolist():
            recent = tokens[-TOKENS:]
            ids = np.zeros((BATCH, TOKENS), np.int64)
            ids[0, : len(recent)] = recent
            scores = session.run({"ids": ids})["logits"][len(recent) - 1].astype(np.float64)
            shares = np.cumsum(np.exp(scores - scores.max()))
            tokens.append(int(np.searchsorted(shares, word / 2**32 * shares[-1], side="right")))
    return decode(tokens)


def main(words: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, help="keep artifact, checkpoints, trace and metrics here")
    options.add_argument("--threads", type=int)
    options.add_argument("--prompt", default="The value of ")
    options.add_argument("--bless", action="store_true", help="record the digest of the trained state")
    chosen = options.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.out or Path(temporary)
        done = train(folder, threads=chosen.threads)
        text = write(folder, chosen.prompt, 400)
    if chosen.bless:
        GOLDEN.write_text(json.dumps(done, indent=2, sort_keys=True) + "\n")
    same = GOLDEN.exists() and json.loads(GOLDEN.read_text()) == done
    print(f"validation loss {float.fromhex(done['validation_loss']):.4f} after {done['steps']} steps")
    print(f"state {done['state']}, {'as' if same else 'NOT as'} recorded\n\n{text}")
    return 0 if same else 1


if __name__ == "__main__":
    ending.run(main)
