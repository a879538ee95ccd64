"""Measures one pair of the benchmark inside a Job's pod, in the engine's own image.

Standard library only, and imports of this package are relative: the Job mounts the folder alone, as a package `driver`.
Read __main__.py first.
"""
