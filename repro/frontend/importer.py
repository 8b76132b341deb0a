"""ONNX to Graph: names resolved on demand from the outputs, shapes static, constants folded.

Only what the outputs need is imported. Every node goes through the function registered for its operator
(`repro.frontend.registry`); local functions are expanded in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx

from repro.errors import ReproError
from repro.frontend import attributes, dispatch
from repro.frontend.context import NodeContext
from repro.frontend.folding import Folder, Sources, dependencies
from repro.frontend.integer_qdq import FLOAT, INTEGER, IntegerQdq
from repro.frontend.limits import BODY_NODES, MAX_UNROLLED_NODES, call_key, domain_of
from repro.frontend.load import LoadedModel, check_opset, function_opsets
from repro.frontend.registry import OnnxOp, find_op
from repro.frontend.scope import Body, Item, Items, Region, Scope, name_of, reads
from repro.frontend.unknown_ops import unknown_ops
from repro.ir.graph import Locations, Value, argument, constant, parameter
from repro.ir.types import Array, DType, TensorType
from repro.numerics.numpy_scalars import canonicalize

_PLACEHOLDERS = 1 << 32
"""Arguments from here on stand for something else: no model has so many inputs."""


class Importer:
    """One import: parameters, folding, locations and budgets of one model."""

    def __init__(self, loaded: LoadedModel, seed: int = 0, qdq: str = FLOAT, changing: Collection[str] = ()) -> None:
        self.loaded, self.seed = loaded, seed & ((1 << 64) - 1)
        self.folder = Folder(lambda node: self.initial[str(node["identity"])][1], changing)
        self.locations: Locations = {}
        self.random_names: dict[str, str] = {}
        self.warnings: dict[str, None] = {}
        self.lost_dropouts: dict[str, None] = {}
        self.unseeded: dict[str, None] = {}
        self.integer_tensors: dict[str, TensorType] = {}
        self.initial: dict[str, tuple[TensorType, Array]] = {}
        self._named: dict[str, list[onnx.TensorProto]] = {}
        self._bodies: dict[str, Body] = {}
        self.input_names: list[str] = []
        self._placeholders = _PLACEHOLDERS
        self._integers = IntegerQdq() if qdq == INTEGER else None
        self._left = 2 * loaded.expanded_nodes + MAX_UNROLLED_NODES

    def initializer(self, scope: Scope, name: str) -> Value:
        """A float initializer is a parameter, everything else a constant."""
        tensor = scope.body.initializers[name]
        dtype, array = self.loaded.tensor(tensor)
        if not dtype.is_float:
            if dtype.is_integer and array.ndim > 1:
                self.integer_tensors[name] = TensorType(dtype, array.shape)
            return self.constant(array, dtype)
        identity = self._identity(name, tensor)
        kind = TensorType(dtype, array.shape)
        self.initial[identity] = (kind, array)
        return parameter(identity, kind)

    def state(self, name: str, tensor: onnx.TensorProto) -> tuple[str, Value]:
        """An initializer that runs change: its identity, and a placeholder, as its value is not known at build."""
        dtype, array = self.loaded.tensor(tensor)
        identity, kind = self._identity(name, tensor), TensorType(dtype, array.shape)
        self.initial[identity] = (kind, array)
        return identity, self.placeholder(kind)

    def placeholder(self, kind: TensorType) -> Value:
        """A value that stands for another one until it is replaced; equal to none."""
        self._placeholders += 1
        return argument(self._placeholders, kind)

    def _identity(self, name: str, tensor: onnx.TensorProto) -> str:
        """One identity for each tensor of the model: its name, numbered where subgraphs use a name again."""
        used = self._named.setdefault(name, [])
        if not any(other is tensor for other in used):
            used.append(tensor)
        number = next(index for index, other in enumerate(used) if other is tensor)
        return name if number == 0 else f"{name}#{number + 1}"

    def constant(self, array: Array, dtype: DType) -> Value:
        """A constant from a storage array; NaNs take their canonical bits."""
        return constant(canonicalize(array, dtype), dtype)

    # ── bodies ──────────────────────────────────────────────────────────────────────────────────────

    def resolve(self, scope: Scope, names: Iterable[str]) -> None:
        """Imports what makes the names of this scope, operands first, without recursion over nodes."""
        stack = list(reversed([*names]))
        waiting: set[int] = set()
        while stack:
            name = stack[-1]
            if not name or name in scope.items:
                stack.pop()
                continue
            index = scope.body.producer.get(name)
            if index is None:
                self._leaf(scope, name)
                stack.pop()
                continue
            missing = self._missing(scope, index)
            if not missing:
                self._node(scope, index)
                waiting.discard(index)
                stack.pop()
                continue
            if index in waiting and any(scope.body.producer.get(other) in waiting for other in missing):
                node = scope.body.nodes[index]
                raise ReproError("the graph has a cycle", node.op_type, node.name, f"it needs its own result '{name}'")
            waiting.add(index)
            stack.extend(reversed(missing))

    def recompute(self, scope: Scope, given: Mapping[str, Item], name: str) -> Item:
        """What a name of a body stands for where other names stand for the items given."""
        known = {other: item for other, item in scope.items.items() if other not in scope.body.producer}
        again = replace(scope, items={**known, **given})
        self.resolve(again, [name])
        return again.find(name)[1]

    def _leaf(self, scope: Scope, name: str) -> None:
        if name in scope.body.initializers:
            scope.items[name] = scope.inward(self.initializer(scope, name))
            return
        known, _ = scope.find(name)
        if not known:
            reader = scope.body.reader(name)
            raise ReproError(
                "a name stands for nothing",
                reader.op_type if reader else None,
                name_of(reader) if reader else None,
                found=f"'{name}' is read, but no node, input or initializer makes it",
                expected="every operand to be made somewhere",
                next="check the model: it may be cut out of a larger one",
            )

    def _missing(self, scope: Scope, index: int) -> list[str]:
        """Names that a node still needs; those its subgraphs read are asked for once its inputs are there."""
        node = scope.body.nodes[index]
        missing = [name for name in reads(node) if not self._ready(scope, name)]
        if missing or not scope.body.children(index):
            return missing
        return [
            name for child in self._live_children(scope, index) for name in child.free if not self._ready(scope, name)
        ]

    def _ready(self, scope: Scope, name: str) -> bool:
        return not name or name in scope.items or (not scope.defines(name) and scope.find(name)[0])

    def _live_children(self, scope: Scope, index: int) -> tuple[Body, ...]:
        """The subgraphs of a node; of an If whose condition is known, only the branch taken."""
        node, children = scope.body.nodes[index], scope.body.children(index)
        if node.op_type != "If" or len(children) != 2:
            return children
        _, condition = scope.find(node.input[0]) if node.input else (False, None)
        known = self.static(scope, condition) if isinstance(condition, Value) else None
        if known is None or known.size != 1:
            return children
        graphs = [item.name for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]
        wanted = "then_branch" if bool(known.reshape(-1)[0]) else "else_branch"
        return tuple(child for name, child in zip(graphs, children, strict=True) if name == wanted)

    def subgraph(
        self,
        ctx: NodeContext,
        body: Body,
        inputs: Sequence[Item],
        region: Region | None = None,
        iteration: Callable[[], Value | None] | None = None,
        label: str = "",
    ) -> tuple[Item, ...]:
        """The outputs of a subgraph on given inputs: in place, or inside a region."""
        if len(inputs) != len(body.inputs):
            raise ctx.error(
                "a subgraph has the wrong number of inputs", f"{len(body.inputs)} inputs", f"{len(inputs)} inputs"
            )
        self._spend(ctx.node, BODY_NODES)
        path = f"{ctx.name}{label}/"
        scope = Scope(body, ctx.scope.opsets, ctx.scope.attributes, path, ctx.scope, region, iteration)
        scope.items.update(zip(body.inputs, inputs, strict=True))
        self.resolve(scope, body.outputs)
        return tuple(scope.find(name)[1] for name in body.outputs)

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────

    def _node(self, scope: Scope, index: int) -> None:
        node = scope.body.nodes[index]
        self._spend(node)
        inputs = tuple(scope.find(name)[1] for name in node.input)
        results = self._call(scope, index, inputs)
        folded = [self._folded(item) for item in results]
        for name, item in zip(node.output, folded, strict=False):
            if name:
                scope.items[name] = item
        for name in node.output[len(folded) :]:
            if name:
                scope.items[name] = None

    def _spend(self, node: onnx.NodeProto, nodes: int = 1) -> None:
        """Counts nodes against the budget of this import."""
        self._left -= nodes
        if self._left < 0:
            raise ReproError(
                "loops of the model unroll to too many nodes",
                node.op_type,
                node.name,
                expected=f"at most {MAX_UNROLLED_NODES} nodes from unrolling",
                next="keep shapes the same in every iteration, so that a loop can stay a loop",
            )

    def _call(self, scope: Scope, index: int, inputs: tuple[Item, ...]) -> tuple[Item, ...]:
        node = scope.body.nodes[index]
        function = self.loaded.functions.get(call_key(node))
        if function is not None:
            return self._function(scope, node, function, inputs)
        op = self._operator(scope, node)
        ctx = NodeContext(self, scope, index, inputs)
        results = dispatch.call(ctx, op, inputs)
        if self._integers is not None:
            results = tuple(self._on_integers(scope, item) for item in results)
        self._locate(results, f"{ctx.op_type} {ctx.name}")
        return results

    def _on_integers(self, scope: Scope, item: Item) -> Item:
        reading = self._integers
        if not isinstance(item, Value) or reading is None:
            return item
        return reading.read(item, lambda value: self.static(scope, value, spend=False))

    def _operator(self, scope: Scope, node: onnx.NodeProto) -> OnnxOp:
        domain = domain_of(node.domain)
        version = scope.opsets.get(domain, 1)
        check_opset(domain, version, node.op_type, node.name)
        op = find_op(domain, node.op_type, version)
        if op is None:
            raise unknown_ops(self.loaded)
        return op

    def _function(
        self, scope: Scope, node: onnx.NodeProto, function: onnx.FunctionProto, inputs: tuple[Item, ...]
    ) -> tuple[Item, ...]:
        """A call of a local function, expanded in place with its own opsets and attributes."""
        key = "\n".join(call_key(node))
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = Body.of_function(function)
        if len(inputs) > len(body.inputs) or len(node.output) > len(body.outputs):
            raise ReproError(
                "a call does not fit its function",
                node.op_type,
                node.name,
                found=f"{len(inputs)} inputs, {len(node.output)} outputs",
                expected=f"at most {len(body.inputs)} inputs, {len(body.outputs)} outputs",
            )
        given = attributes.resolve(node, scope.attributes)
        defaults = {item.name: item for item in function.attribute_proto}
        own = name_of(node) or node.op_type
        inner = Scope(body, function_opsets(function), {**defaults, **given}, f"{scope.path}{own}/")
        inner.items.update(dict.fromkeys(body.inputs))
        inner.items.update(zip(body.inputs, inputs, strict=False))
        inner.iteration, inner.region = scope.linear_iteration, scope.around()
        wanted = [name for name, asked in zip(body.outputs, node.output, strict=False) if asked]
        self.resolve(inner, wanted)
        return tuple(inner.items.get(name) if name in wanted else None for name in body.outputs)

    def _folded(self, item: Item) -> Item:
        if isinstance(item, Value):
            keep = self._integers is not None and self._integers.keeps(item)
            return item if keep else self.folder.fold(item)
        return None if item is None else Items(tuple(self.folder.fold(value) for value in item.values))

    def _locate(self, results: Iterable[Item], source: str) -> None:
        """Gives every node that is new a source location."""
        items = [item for item in results if item is not None]
        values = [value for item in items for value in (item.values if isinstance(item, Items) else (item,))]
        stack = [value.node for value in values]
        while stack:
            node = stack.pop()
            if node in self.locations or node.op in ("argument", "parameter", "constant"):
                continue
            self.locations[node] = source
            stack.extend(operand.node for operand in node.operands)

    # ── what functions of operators ask ─────────────────────────────────────────────────────────────

    def static(self, scope: Scope, value: Value, spend: bool = True) -> Array | None:
        """The storage array of a value that is known at build, looking through the regions around; `spend` is
        Folder.static's."""
        region = scope.around()
        while region is not None and value.node.op == "argument":
            outer = region.outside(value)
            if outer is None:
                return None
            value, region = outer, region.surroundings.around()
        return self.folder.static(value, spend)

    def sources(self, scope: Scope, value: Value) -> Sources:
        """What only the run knows of what a value depends on; nothing is known of it inside a region."""
        region = scope.around()
        while region is not None:
            outer = region.outside(value)
            if outer is None:
                return Sources()
            value, region = outer, region.surroundings.around()
        leaves = dependencies([value])
        found = [node["index"] for node in leaves if node.op == "argument"]
        return Sources(
            tuple(self.input_names[index] for index in found if index < len(self.input_names)),
            tuple(str(node["identity"]) for node in leaves if node.op == "parameter" and self.folder.changes(node)),
        )

    def warn(self, text: str) -> None:
        """Notes something that the user should know; each text once."""
        self.warnings.setdefault(text)
