"""What several test modules and the benchmarks share: real processes, a real store, fakes and samples."""
