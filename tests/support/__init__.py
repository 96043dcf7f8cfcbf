"""Shared by test modules and benchmarks: real processes, a real store, fakes and samples."""
