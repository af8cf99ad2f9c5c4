//! The driver's image against Linux: a guest with `rdma_rxe` on the same wire, and what both do with each other.

pub mod guest;
