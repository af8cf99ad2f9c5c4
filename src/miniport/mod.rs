//! The NDIS miniport: registration, the adapter's life cycle, OID requests, frames.

pub mod adapter;
pub mod initialize;
pub mod lifecycle;
pub mod messages;
pub mod oid;
pub mod receive;
pub mod register;
pub mod send;
pub mod state;
pub mod statistics;
pub mod traffic;
