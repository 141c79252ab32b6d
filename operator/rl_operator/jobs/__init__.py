"""The steps of an RLJob's reconcile: inputs, children, status, deletion."""
