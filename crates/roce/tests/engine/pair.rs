//! Two engines and a virtual network between them, as all tests here use them.

pub use roce_testkit::*;
