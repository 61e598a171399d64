"""What goes on inside a model: attention, gradients, and what a linear probe can read off its layers."""
