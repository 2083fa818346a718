"""What tests/run_tests.py consists of: runs of ctest, their results, second runs, tables."""
