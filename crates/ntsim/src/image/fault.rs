//! Faults of the image.

/// Readies the calling thread for faults: they are handled on a stack of their own.
pub(crate) fn prepare_thread() {}
