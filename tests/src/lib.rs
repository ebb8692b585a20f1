//! Integration tests over the facade and the command; the tests are in `tests/`.
