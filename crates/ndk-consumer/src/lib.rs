//! A consumer of NDKPI.
