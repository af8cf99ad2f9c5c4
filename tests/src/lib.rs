//! Integration tests on the driver image.
