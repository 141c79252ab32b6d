"""What a run needs of a device's memory, by formula: nothing is loaded and nothing is measured."""
