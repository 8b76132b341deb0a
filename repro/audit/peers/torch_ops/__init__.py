"""ONNX operators as ATen kernels: what the `torch` peer runs.

call          one node's attributes and opset; `TABLE`, which the modules below fill; `Unsupported`
losses        losses over a batch or its parts
tensors       arrays of this package to PyTorch's tensors, and back
elementwise   functions of elements, activations, comparisons
layers        contractions, convolutions, normalizations, attention, losses
pooling       pools and their padding
recurrent     RNN, GRU, LSTM
reductions    sums, means, extremes, running sums
moves         what changes shape or place and computes nothing
indexing      gather, scatter, selection
sampling      resizing, sampling on a grid
fused         the same as one graph, compiled by Inductor
training      training steps: gradients, clipping, updates
interpreter   a model run node by node; control flow; the nodes that have no entry here

All but this file import PyTorch, which is an extra: the peer imports them when it runs.
"""
