//! KV pages in files: O_DIRECT, one file per page, checked on read.
