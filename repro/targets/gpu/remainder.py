"""The exact remainder of floats: LLVM's own for PTX divides, truncates and multiplies, which rounds.

A float is m * 2^(e - bias) with an integer m. The remainder of m_x * 2^(e_x - e_y) by m_y is found a few bits of the
power at a time, as many as the integer has room above m, and is then below m_y: it needs no rounding.
"""

from __future__ import annotations

from repro.ir.types import F32, DType
from repro.targets.llvm.text import Function, Val, element

_TEXT = """\
declare {i} @llvm.ctlz.{i}({i}, i1)
declare {i} @llvm.umin.{i}({i}, {i})
declare {i} @llvm.umax.{i}({i}, {i})
define internal {f} @{name}({f} %x, {f} %y) noinline {{
entry:
  %bx = bitcast {f} %x to {i}
  %by = bitcast {f} %y to {i}
  %ax = and {i} %bx, {magnitude}
  %ay = and {i} %by, {magnitude}
  %sign = xor {i} %bx, %ax
  %xbad = icmp uge {i} %ax, {infinity}
  %ybad = icmp ugt {i} %ay, {infinity}
  %zero = icmp eq {i} %ay, 0
  %bad1 = or i1 %xbad, %ybad
  %bad = or i1 %bad1, %zero
  br i1 %bad, label %nan, label %ordered
nan:
  ret {f} bitcast ({i} {quiet} to {f})
ordered:
  %small = icmp ult {i} %ax, %ay
  br i1 %small, label %same, label %divide
same:
  ret {f} %x
divide:
  %fx = lshr {i} %ax, {fraction}
  %fy = lshr {i} %ay, {fraction}
  %ex = call {i} @llvm.umax.{i}({i} %fx, {i} 1)
  %ey = call {i} @llvm.umax.{i}({i} %fy, {i} 1)
  %lx = shl {i} %ex, {fraction}
  %ly = shl {i} %ey, {fraction}
  %dx = sub {i} %ax, %lx
  %dy = sub {i} %ay, %ly
  %mx = add {i} %dx, {hidden}
  %my = add {i} %dy, {hidden}
  %first = urem {i} %mx, %my
  %steps = sub {i} %ex, %ey
  br label %head
head:
  %left = phi {i} [ %steps, %divide ], [ %fewer, %body ]
  %r = phi {i} [ %first, %divide ], [ %next, %body ]
  %done = icmp eq {i} %left, 0
  br i1 %done, label %pack, label %body
body:
  %take = call {i} @llvm.umin.{i}({i} %left, {i} {room})
  %wide = shl {i} %r, %take
  %next = urem {i} %wide, %my
  %fewer = sub {i} %left, %take
  br label %head
pack:
  %leading = call {i} @llvm.ctlz.{i}({i} %r, i1 false)
  %lift = sub {i} %leading, {room1}
  %most = sub {i} %ey, 1
  %shift = call {i} @llvm.umin.{i}({i} %lift, {i} %most)
  %m = shl {i} %r, %shift
  %e = sub {i} %most, %shift
  %high = shl {i} %e, {fraction}
  %value = add {i} %high, %m
  %none = icmp eq {i} %r, 0
  %kept = select i1 %none, {i} 0, {i} %value
  %signed = or {i} %kept, %sign
  %result = bitcast {i} %signed to {f}
  ret {f} %result
}}"""


def remainder(f: Function, a: Val, b: Val) -> Val:
    """a - trunc(a / b) * b without rounding, sign of a; lane by lane."""
    name = f"repro_remainder_{a.dtype.name}"
    f.declared[_definition(a.dtype, name)] = None
    kind = element(a.dtype)
    if a.width == 1:
        return f.let(f"call {kind} @{name}({a.typed}, {b.typed})", a.dtype)
    whole = Val("poison", a.dtype, a.width)
    for lane in range(a.width):
        one, other = (f.let(f"extractelement {v.typed}, i64 {lane}", a.dtype) for v in (a, b))
        found = remainder(f, one, other)
        whole = f.let(f"insertelement {whole.typed}, {found.typed}, i64 {lane}", a.dtype, a.width)
    return whole


def _definition(dtype: DType, name: str) -> str:
    fraction = 23 if dtype is F32 else 52
    bits, hidden = dtype.bits, 1 << fraction
    infinity = ((1 << (bits - 1 - fraction)) - 1) << fraction
    return _TEXT.format(
        i=f"i{bits}",
        f=element(dtype),
        name=name,
        magnitude=(1 << (bits - 1)) - 1,
        infinity=infinity,
        quiet=infinity | hidden >> 1,
        fraction=fraction,
        hidden=hidden,
        room=bits - 1 - fraction,
        room1=bits - 1 - fraction,
    )
