"""What people ask of a run's data: bounded queries, answered from indexes, and their answers."""
