//! The example of `README.md`, compiled.
#![doc = include_str!("../../../README.md")]
