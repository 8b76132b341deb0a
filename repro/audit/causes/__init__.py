"""Why a node drifts: the known orders and roundings that give the other executor's bits.

problem       a node, its inputs, two results; candidates
sums          sums in the orders that libraries use
contractions  MatMul, Gemm, Conv, reductions
epilogue      what a runtime fuses in behind them
rows          Softmax and the normalizations
elementwise   elementary functions and activations, by their formulas
updates       what a training step does with a gradient
seeking       candidates tried on a sample
"""

from repro.audit.causes.seeking import causes

__all__ = ["causes"]
