// tests/windows/posix.h has what tests use of this header.
