//! The storage tier under the KV cache of LLM inference engines.
