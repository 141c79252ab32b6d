"""Trackers: TensorBoard, Weights & Biases, MLflow, and samples in the bucket."""
