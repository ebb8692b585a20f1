//! Conformance suite, reference model and fault decorators for hicache stores.
