"""What is found from records alone, on executors whose every difference is planted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.audit.capture import value_of
from repro.audit.comparison import NOT_KEPT, audit, compare, group
from repro.audit.records import Audit, Capture, Executor, Kind, ModelSummary, Origin, Outcome, Pair, Record, Value
from repro.errors import ReproError
from tests.audit.simulated import GOLDEN, LEAVES, Runtime, model, node, numbers, record, without_arrays

CHAIN = model([node("A", ["x", "w0"], ["a"]), node("B", ["a", "w1"], ["b"]), node("C", ["b"], ["c"])], ["c"])


def pairs(found: Audit) -> dict[tuple[str, str], Pair]:
    return {(pair.left, pair.right): pair for pair in found.pairs}


def against_golden(of: ModelSummary, runtime: Runtime) -> Pair:
    (pair,) = audit([record(of, {"peer": runtime})]).pairs
    return pair


# ── random graphs ───────────────────────────────────────────────────────────────────────────────────


@st.composite
def models(draw: st.DrawFn) -> ModelSummary:
    """Nodes in an order in which they can run; what nothing reads is an output, and some other values are too."""
    values: list[str] = []
    nodes = []
    for number in range(draw(st.integers(1, 10))):
        inputs = draw(st.lists(st.sampled_from([*LEAVES, *values]), min_size=1, max_size=3, unique=True))
        outputs = [f"v{number}{letter}" for letter in "ab"[: draw(st.sampled_from([1, 1, 1, 2]))]]
        nodes.append(node(f"n{number}", inputs, outputs))
        values += outputs
    read = {name for each in nodes for name in each.inputs}
    outputs = [name for name in values if name not in read or draw(st.sampled_from([False, False, True]))]
    return model(nodes, outputs)


def runtimes(of: ModelSummary) -> st.SearchStrategy[Runtime]:
    inner = sorted({name for each in of.nodes for name in each.outputs} - {*of.outputs})
    ways = st.dictionaries(st.sampled_from([each.name for each in of.nodes]), st.sampled_from([1, 2]), max_size=4)
    hidden = st.frozensets(st.sampled_from(inner)) if inner else st.just(frozenset[str]())
    return st.builds(Runtime, ways, hidden)


def linked(of: ModelSummary, nodes: Iterable[str], hidden: Iterable[str]) -> bool:
    """Whether the nodes hang together by hidden values."""
    chosen = [each for each in of.nodes if each.name in set(nodes)]
    joined = {chosen[0].name}
    for _ in chosen:
        for one in chosen:
            for other in chosen:
                if set(one.outputs) & set(other.inputs) & set(hidden) and {one.name, other.name} & joined:
                    joined |= {one.name, other.name}
    return len(joined) == len(chosen)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_exactly_the_planted_nodes_are_origins(data: st.DataObject):
    of = data.draw(models())
    runtime = data.draw(runtimes(of))
    pair = against_golden(of, runtime)
    found = [origin.nodes for origin in pair.origins]
    assert sorted(name for nodes in found for name in nodes if name in runtime.planted) == sorted(runtime.planted)
    for origin in pair.origins:
        assert set(origin.nodes) & runtime.planted.keys(), "a false find"
        assert origin.kind is (Kind.NODE if len(origin.nodes) == 1 else Kind.FUSED)
        assert linked(of, origin.nodes, runtime.hidden)
        assert origin.drift is not None
        assert origin.left != origin.right
    if not runtime.hidden:
        assert sorted(found) == sorted((name,) for name in runtime.planted)
    if runtime.planted:
        assert pair.first is not None
        assert any(pair.first == origin.value and not origin.fed for origin in pair.origins)
    assert pair.identical == (not runtime.planted)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_two_executors_are_told_apart_without_false_finds(data: st.DataObject):
    of = data.draw(models())
    left, right = data.draw(runtimes(of)), data.draw(runtimes(of))
    made = record(of, {"left": left, "right": right})
    one, other = made.captures
    pair = compare(one, other, of, made.golden)
    apart = {each.name for each in of.nodes if left.planted.get(each.name) != right.planted.get(each.name)}
    for origin in pair.origins:
        assert set(origin.nodes) & apart, "a false find"
    if not left.hidden | right.hidden:
        assert sorted(origin.nodes for origin in pair.origins) == sorted((name,) for name in apart)
    assert bool(pair.different) == bool(apart)
    assert (len(group([one, other], of)) == 1) == (not apart)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_records_of_changed_models_have_no_false_finds(data: st.DataObject):
    """A weight or a node's attribute differs between the machines, and the same executor drifts on both alike."""
    of = data.draw(models())
    runtime = data.draw(runtimes(of))
    nodes = list(of.nodes)
    place = data.draw(st.integers(0, len(nodes) - 1))
    by_weight = data.draw(st.booleans())
    if not by_weight:
        nodes[place] = replace(nodes[place], digest="sha256:other")
    weights = {"w0": b"changed" if by_weight else b"", "w1": b""}
    changed = model(nodes, of.outputs, weights)
    found = audit([record(of, {"peer": runtime}, "one"), record(changed, {"peer": runtime}, "two")])
    for names in (("one:golden", "two:golden"), ("one:peer", "two:peer")):
        (origin,) = pairs(found)[names].origins
        if by_weight:
            assert (origin.kind, origin.value, origin.nodes) == (Kind.WEIGHT, "w0", ())
        else:
            assert (origin.kind, origin.nodes) == (Kind.ATTRIBUTE, (nodes[place].name,))


# ── one finding after another ───────────────────────────────────────────────────────────────────────


def test_an_origin_says_what_it_read_and_how_far_it_drifted():
    pair = against_golden(CHAIN, Runtime({"B": 1}))
    golden = record(CHAIN, {}).golden
    assert (pair.left, pair.right, pair.compared, pair.different) == ("golden", "peer", 3, 2)
    assert (pair.first, pair.first_node) == ("b", "B")
    (origin,) = pair.origins
    assert (origin.kind, origin.nodes, origin.value, origin.fed) == (Kind.NODE, ("B",), "b", False)
    assert origin.sources == {"w1": CHAIN.initializers["w1"], "a": golden.values["a"].digest}
    assert origin.left == golden.values["b"].digest
    assert origin.drift is not None
    assert (origin.drift.elements, origin.drift.different) == (8, 8)
    assert [name for name, _ in pair.growth] == ["a", "b", "c"]
    assert [drift.different for _, drift in pair.growth] == [0, 8, 8]
    assert set(pair.outputs) == {"c"}
    assert pair.outputs["c"].argmax_flips is not None


def test_what_only_feeding_shows_is_said_to_be_so():
    pair = against_golden(CHAIN, Runtime({"A": 1, "C": 1}))
    assert [(origin.nodes, origin.fed) for origin in pair.origins] == [(("A",), False), (("C",), True)]


def test_a_fused_group_is_one_origin():
    pair = against_golden(CHAIN, Runtime({"A": 1}, frozenset("ab")))
    (origin,) = pair.origins
    assert (origin.kind, origin.nodes, origin.value) == (Kind.FUSED, ("A", "B", "C"), "c")
    assert set(origin.sources) == {"x", "w0", "w1"}


def test_groups_that_share_a_hidden_node_are_one_origin():
    fork = model([node("A", ["x"], ["a"]), node("B", ["a"], ["b"]), node("C", ["a"], ["c"])], ["b", "c"])
    (origin,) = against_golden(fork, Runtime({"A": 1}, frozenset("a"))).origins
    assert (origin.nodes, origin.value) == (("A", "B", "C"), "b")


def test_several_outputs_of_a_node_are_one_origin():
    split = model([node("A", ["x"], ["a", "b"]), node("B", ["a", "b"], ["c"])], ["c"])
    (origin,) = against_golden(split, Runtime({"A": 1})).origins
    assert (origin.nodes, origin.value) == (("A",), "a")


def test_digests_alone_give_everything_but_sizes():
    whole = record(CHAIN, {"peer": Runtime({"B": 1, "C": 2})})
    bare = replace(
        whole, golden=without_arrays(whole.golden), captures=tuple(without_arrays(each) for each in whole.captures)
    )
    (full,), (short,) = audit([whole]).pairs, audit([bare]).pairs
    assert [replace(origin, drift=None) for origin in full.origins] == list(short.origins)
    assert (full.first, full.different, full.compared) == (short.first, short.different, short.compared)
    assert (short.growth, dict(short.outputs), dict(short.unmeasured)) == ((), {}, {"c": NOT_KEPT})


def test_an_output_that_is_equal_needs_no_arrays():
    whole = record(CHAIN, {"peer": Runtime()})
    bare = replace(whole, captures=tuple(without_arrays(each) for each in whole.captures))
    (pair,) = audit([bare]).pairs
    assert pair.identical
    assert pair.outputs["c"].different == 0


def changed(capture: Capture, **parts: object) -> Capture:
    return replace(capture, **parts)


def only(made: Record, **parts: object) -> Pair:
    (pair,) = audit([replace(made, captures=(changed(made.captures[0], **parts),))]).pairs
    return pair


def test_of_an_unfaithful_capture_only_the_outputs_are_compared():
    made = record(CHAIN, {"peer": Runtime({"B": 1})})
    pair = only(made, faithful=False)
    assert (pair.compared, pair.first) == (1, "c")
    assert any("showing its values changes its outputs" in note for note in pair.notes)
    (origin,) = pair.origins
    assert origin.nodes == ("A", "B", "C")
    equal = only(record(CHAIN, {"peer": Runtime()}), faithful=False)
    assert equal.identical


def test_notes_of_a_capture_reach_its_pairs():
    assert only(record(CHAIN, {"peer": Runtime()}), notes=("differs from run to run: c",)).notes == (
        "peer: differs from run to run: c",
    )


def test_another_type_is_an_origin_with_a_note():
    made = record(CHAIN, {"peer": Runtime()})
    wide = {name: array.astype(np.float64) for name, array in made.captures[0].arrays.items() if name == "c"}
    values = {**made.captures[0].values, "c": value_of(wide["c"])}
    pair = only(made, values=values, served={"c": values["c"]}, arrays={**made.captures[0].arrays, **wide})
    (origin,) = pair.origins
    assert (origin.nodes, origin.drift) == (("C",), None)
    assert origin.notes == ("another type or shape: golden f32[2,4], peer f64[2,4]",)
    assert list(pair.unmeasured) == ["c"]
    assert not pair.outputs


def test_shapes_and_integers_are_compared_too():
    made = record(CHAIN, {"peer": Runtime()})
    golden = replace(made.golden, values={**made.golden.values, "b": Value("i64[1]", "sha256:1")})
    peer = changed(made.captures[0], values={**made.captures[0].values, "b": Value("i64[1]", "sha256:2")})
    (pair,) = audit([replace(made, golden=golden, captures=(peer,))]).pairs
    assert pair.first == "b"
    assert "b" not in dict(pair.growth)


@pytest.mark.parametrize("op_type", ["RandomNormal", "Dropout"])
def test_a_random_node_is_said_to_be_free(op_type: str):
    of = model([node("A", ["x"], ["a"], op_type)], ["a"])
    (origin,) = against_golden(of, Runtime({"A": 1})).origins
    assert any("ONNX specifies no stream" in note for note in origin.notes)


def test_what_a_peer_did_not_run_itself_is_said():
    made = record(CHAIN, {"torch": Runtime({"B": 1})})
    (origin,) = only(made, implementations={"B": "onnx-reference", "A": "onnx-reference"}).origins
    assert origin.notes == ("B: run by onnx-reference",)


def test_values_of_an_executors_own_making_are_left_out():
    made = record(CHAIN, {"peer": Runtime()})
    pair = only(made, values={**made.captures[0].values, "reordered": Value("f32[1]", "sha256:0")})
    assert pair.identical
    assert pair.compared == 3


def test_a_capture_that_did_not_run_is_not_compared():
    made = record(CHAIN, {"peer": Runtime()})
    with pytest.raises(ReproError, match="did not end"):
        compare(made.golden, changed(made.captures[0], outcome=Outcome.TIMEOUT), CHAIN)
    assert not audit([replace(made, captures=(changed(made.captures[0], outcome=Outcome.CRASHED),))]).pairs


# ── several executors, several machines ─────────────────────────────────────────────────────────────


def test_groups_are_of_the_same_bits_and_pairs_between_groups():
    peers = {
        "good": Runtime(),
        "b1": Runtime({"B": 1}),
        "b1-fused": Runtime({"B": 1}, frozenset("a")),
        "c1": Runtime({"C": 1}),
    }
    found = audit([record(CHAIN, peers)])
    assert found.groups == (("golden", "good"), ("b1", "b1-fused"), ("c1",))
    assert [(pair.left, pair.right) for pair in found.pairs] == [
        *(("golden", name) for name in peers),
        ("b1", "c1"),
    ]
    between = found.pairs[-1]
    assert [(origin.nodes, origin.fed) for origin in between.origins] == [(("B",), False), (("C",), True)]
    assert not between.growth
    assert audit([record(CHAIN, peers)], growth_between=True).pairs[-1].growth


def test_machines_are_told_apart_by_label():
    same = {"peer": Runtime({"B": 1})}
    found = audit([record(CHAIN, same, "laptop"), record(CHAIN, {"peer": Runtime({"B": 2})}, "server")])
    assert found.groups == (("laptop:golden", "server:golden"), ("laptop:peer",), ("server:peer",))
    assert pairs(found)["laptop:golden", "server:golden"].identical
    (origin,) = pairs(found)["laptop:peer", "server:peer"].origins
    assert origin.nodes == ("B",)
    again = audit([record(CHAIN, same), record(CHAIN, same)])
    assert again.groups == (("1:golden", "2:golden"), ("1:peer", "2:peer"))


def test_namesakes_stand_for_groups_of_two_machines():
    peers = {"a": Runtime({"A": 1}), "b": Runtime({"A": 1})}
    others = {"b": Runtime({"A": 2})}
    found = audit([record(CHAIN, peers, "one"), record(CHAIN, others, "two")])
    assert ("one:b", "two:b") in pairs(found)
    assert ("one:a", "two:b") not in pairs(found)


def given_kinds(origins: Iterable[Origin]) -> list[tuple[Kind, tuple[str, ...], str]]:
    return [(origin.kind, origin.nodes, origin.value) for origin in origins]


def test_other_inputs_are_an_origin():
    found = audit([record(CHAIN, {}, "one"), record(CHAIN, {}, "two", numbers(b"another x"))])
    (pair,) = found.pairs
    assert given_kinds(pair.origins) == [(Kind.INPUT, (), "x")]
    assert found.groups == (("one:golden",), ("two:golden",))


def test_a_changed_graph_is_one_origin():
    longer = model([*CHAIN.nodes[:2], node("Z", ["b"], ["z"]), node("C", ["z"], ["c"])], ["c"])
    (pair,) = audit([record(CHAIN, {}, "one"), record(longer, {}, "two")]).pairs
    assert given_kinds(pair.origins) == [(Kind.GRAPH, ("C", "Z"), "c")]
    assert pair.first == "c"


def test_names_of_nodes_say_nothing():
    renamed = model([replace(each, name=each.name * 2) for each in CHAIN.nodes], CHAIN.outputs)
    (pair,) = audit([record(CHAIN, {}, "one"), record(renamed, {}, "two")]).pairs
    assert pair.identical


def test_a_weight_of_one_side_only_is_a_change_of_the_graph():
    less = model([node("A", ["x", "w0"], ["a"]), node("B", ["a"], ["b"]), CHAIN.nodes[2]], ["c"], {"w0": b""})
    (pair,) = audit([record(CHAIN, {}, "one"), record(less, {}, "two")]).pairs
    assert given_kinds(pair.origins) == [(Kind.GRAPH, ("B",), "b")]
    assert pair.origins[0].notes == ("inputs or weights of one side only: w1",)


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ReproError, match="nothing to compare"):
        audit([])


def test_a_finding_is_the_same_from_run_to_run():
    peers = {"p": Runtime({"A": 1, "C": 1}), "q": Runtime({"B": 2}, frozenset("a"))}
    one, other = (audit([record(CHAIN, peers)]) for _ in range(2))
    assert [pair.origins for pair in one.pairs] == [pair.origins for pair in other.pairs]
    assert [pair.growth for pair in one.pairs] == [pair.growth for pair in other.pairs]


def test_golden_is_an_executor_like_any_other_when_compared_by_itself():
    made = record(CHAIN, {"peer": Runtime({"B": 1})})
    pair = compare(made.golden, made.captures[0], CHAIN)
    assert pair.left == GOLDEN.name
    assert [origin.nodes for origin in pair.origins] == [("B",)]
    assert Executor("peer").name == pair.right


def test_a_constant_is_no_part_of_what_drifts():
    of = model([node("K", [], ["k"], "Constant"), node("A", ["x", "k"], ["a"])], ["a"])
    (origin,) = against_golden(of, Runtime({"A": 1}, frozenset("k"))).origins
    assert (origin.kind, origin.nodes) == (Kind.NODE, ("A",))
    assert set(origin.sources) == {"x", "k"}
    changed = model([replace(of.nodes[0], digest="sha256:other"), of.nodes[1]], ["a"])
    hidden = {"peer": Runtime({"A": 1}, frozenset("k"))}
    found = audit([record(of, hidden, "one"), record(changed, hidden, "two")])
    for names in (("one:golden", "two:golden"), ("one:peer", "two:peer")):
        assert given_kinds(pairs(found)[names].origins) == [(Kind.ATTRIBUTE, ("K",), "k")]
