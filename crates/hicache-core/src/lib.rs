//! What a KV page is, how it is named, and what a store promises.
