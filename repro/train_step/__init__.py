"""A training step as one graph: loss, gradients, clipping, the optimizer's update, the schedule of its rate."""
