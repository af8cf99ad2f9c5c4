//! The network between hosts.
