"""The files of a model as it came: their weights are read, or the model is refused."""
