"""A run of several processes: agreement between its ranks, data-parallel wrappers, sharded models."""
