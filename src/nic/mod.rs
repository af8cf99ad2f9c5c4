//! The virtio-net device, as NDIS hands it to a miniport.

pub mod dma;
pub mod interrupt;
pub mod port;
pub mod registers;
pub mod resources;
