//! The image: loading, binding, symbols, stack walks, faults.

pub mod fault;
pub mod stack;
