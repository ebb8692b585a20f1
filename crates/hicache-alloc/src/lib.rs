//! Page-aligned host memory for KV pages: regions, strides, pools and pages.
