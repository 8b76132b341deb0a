"""Text forms: what prints parses back to the same digest, for every op's samples and for lowered kernels."""

from __future__ import annotations

import pytest

from passes.lower import lower
from passes.prepare import expand
from repro.ir.graph import Graph, argument
from repro.ir.parse_kernel import parse_kernel
from repro.ir.text import parse_graph, print_graph
from repro.ir.types import BY_NAME, F32, TensorType, parse_type
from repro.ops import OPS, scalar
from repro.ops.verify import verify
from tests.ops.samples import SAMPLES, graph_of


@pytest.mark.parametrize("name", sorted(OPS))
def test_graphs_and_kernels_parse_back(name: str) -> None:
    for sample in OPS[name].samples():
        graph = graph_of(sample)
        verify(graph)
        text = print_graph(graph)
        back = parse_graph(text)
        assert back.digest == graph.digest
        assert print_graph(back) == text
        for kernel in lower(expand(graph)).kernels:
            assert parse_kernel(kernel.text).text == kernel.text


def test_there_are_samples() -> None:
    assert len(SAMPLES) > 400


def test_types_parse_back() -> None:
    for dtype in BY_NAME.values():
        for shape in ((), (3,), (2, 0, 5)):
            kind = TensorType(dtype, shape)
            assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("text", ["", "graph {", "graph {\n%0 = neg %1 : f32[]\nreturn %0\n}", "graph {\nreturn %0\n}"])
def test_broken_text_names_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        parse_graph(text)


def test_equal_nodes_are_one_and_bits_decide() -> None:
    of = TensorType(F32, (2,))
    assert argument(0, of).node is argument(0, of).node
    plus, minus = scalar(0.0, F32), scalar(-0.0, F32)
    assert plus.node.digest != minus.node.digest
    assert Graph((of,), (argument(0, of),)).digest != Graph((of,), (argument(0, of),) * 2).digest
