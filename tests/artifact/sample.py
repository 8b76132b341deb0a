"""A small artifact with every kind of part, made without a compiler."""

from __future__ import annotations

from repro.artifact.canonical import hex64, sha256
from repro.artifact.config import (
    FORMAT_VERSION,
    Build,
    CompiledEntry,
    CompiledKernel,
    Config,
    Entry,
    GoldenRun,
    Pass,
    Passes,
    Source,
    Target,
    Tensor,
    Value,
    Versions,
)
from repro.artifact.layout import Artifact, Layer
from repro.artifact.media import KERNEL_TYPE, PROGRAM_TYPE, SOURCE_TYPE, TENSOR_TYPE
from repro.targets.cpu.target import OBJECT_TYPE


def sample_artifact(weight: bytes = b"\0\0\x80\x3f") -> Artifact:
    source = Layer("source/model.onnx", SOURCE_TYPE, b"a model")
    kernel = Layer("kernels/k.txt", KERNEL_TYPE, b"kernel {\n}\n")
    program = Layer("programs/cpu/infer.txt", PROGRAM_TYPE, b"program {\n}\n")
    code = Layer("code/cpu/k.o", OBJECT_TYPE, b"\x7fELF" + bytes(5000))
    stored = Layer("weights/00000", TENSOR_TYPE, weight)
    outputs = Layer("golden/infer/outputs/0", TENSOR_TYPE, b"\0\0\0\x40")
    config = Config(
        format=FORMAT_VERSION,
        contract=1,
        versions=Versions("0.1.0", "0.50.0", "22.1.0"),
        build=Build({"N": 1}, (), ("cpu/x86-64-v3",), "drawn", hex64(0), hex64(0), {}, False, None, "float", None),
        source=Source(source.digest, {"": 17}),
        entries=(Entry("infer", sha256(b"g"), (Value("x", "f32[1]"),), (Value("ÿ\n", "f32[1]"),), (0,), ()),),
        weights=(Tensor("w", "f32[]", stored.digest),),
        passes=(Passes("infer", "", (Pass("simplify", sha256(b"1"), sha256(b"2")),)),),
        targets=(
            Target(
                "cpu/x86-64-v3",
                sha256(b"machine"),
                (
                    CompiledEntry(
                        "infer", program.digest, code.digest, (CompiledKernel(kernel.digest, "axis=-", code.digest),)
                    ),
                ),
            ),
        ),
        golden=(GoldenRun("infer", (), (Tensor("y", "f32[1]", outputs.digest),), ()),),
        limits={"nodes": 1000},
    )
    return Artifact(config, (source, kernel, program, code, stored, outputs))
