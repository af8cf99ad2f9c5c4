#![cfg_attr(not(test), no_std)]
//! virtio 1.2 network device driver.
extern crate alloc;
